
const byId = (id) => document.getElementById(id);
const MAX_POINTS = 300;
const state = {
  snapshot: null, points: new Map(), selected: decodeURIComponent(location.hash.slice(1)) || null,
  received: 0, connected: false, token: null, colors: new Map(), owners: new Map(), movedAt: new Map(),
};
const keyOf = (group) => `${group.kind === "zookeeper" ? "zookeeper" : "kafka"}/${group.group}`;
const charts = {
  lag: new Chart(byId("lag-chart"), [1], count),
  age: new Chart(byId("age-chart"), [2], age),
  rate: new Chart(byId("rate-chart"), [3, 4], rate),
};

/* --- theme --- */
const dark = matchMedia("(prefers-color-scheme: dark)");
function readTheme() { try { return localStorage.getItem("theme"); } catch { return null; } }
function applyTheme() { document.documentElement.dataset.theme = readTheme() ?? (dark.matches ? "dark" : "light"); }
byId("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); applyTheme(); } catch { document.documentElement.dataset.theme = next; }
});
dark.addEventListener("change", applyTheme);
applyTheme();

/* --- members: colors and changes of owners --- */
function colorOf(key, member) {
  const colors = state.colors.get(key) ?? new Map();
  state.colors.set(key, colors);
  if (!colors.has(member)) {
    const used = new Set(colors.values());
    const free = [...Array(10).keys()].find((number) => !used.has(number));
    colors.set(member, free ?? colors.size % 10);
  }
  return colors.get(member);
}

function noteOwners(group) {
  const key = keyOf(group), members = new Set(group.members.map((member) => member.member_id));
  for (const member of members) colorOf(key, member);
  const owners = new Map(group.partitions.map((row) => [`${row.topic}/${row.partition}`, row.member_id]));
  const before = state.owners.get(key);
  if (before) {
    for (const [tp, owner] of owners)
      if (owner && before.has(tp) && before.get(tp) !== owner) state.movedAt.set(`${key}/${tp}`, Date.now());
  }
  const merged = new Map(owners);
  if (before) for (const [tp, owner] of before) if (!merged.get(tp)) merged.set(tp, owner);
  state.owners.set(key, merged);
  if (!group.is_rebalancing)
    for (const member of state.colors.get(key)?.keys() ?? []) if (!members.has(member)) state.colors.get(key).delete(member);
}

function nameOf(member) {
  return member.instance_id ?? member.client_id ?? member.member_id;
}

/* --- summary --- */
function showTiles(snapshot) {
  const groups = snapshot.groups, points = groups.map((group) => group.point).filter(Boolean);
  const sum = (index) => points.reduce((total, point) => total + (point[index] ?? 0), 0);
  const oldest = Math.max(0, ...points.map((point) => point[2] ?? 0));
  const active = groups.filter((group) => group.members.length).length;
  const busy = groups.filter((group) => group.is_rebalancing).length;
  const dead = snapshot.dead_letters.reduce((total, row) => total + row.open, 0);
  const errors = snapshot.health.filter((reason) => reason.level === "error").length;
  const warnings = snapshot.health.length - errors;
  const slowest = groups.filter((group) => group.point && group.point[2] === oldest && oldest > 0)[0];
  const tiles = [
    ["Groups", count(groups.length + snapshot.hidden_groups), `${active} with members${busy ? `, ${busy} rebalancing` : ""}`, ""],
    ["Lag", count(sum(1)), "records not consumed", ""],
    ["Oldest record", age(oldest), slowest ? slowest.group : "nothing waits", ""],
    ["Consumed/s", rate(sum(3)), `produced ${rate(sum(4))}/s`, ""],
    ["Dead letters", count(dead), `${snapshot.dead_letters.length} topic${snapshot.dead_letters.length === 1 ? "" : "s"}`, dead ? "warn" : ""],
    ["Health", errors ? `${errors} error${errors > 1 ? "s" : ""}` : warnings ? `${warnings} warning${warnings > 1 ? "s" : ""}` : "Good", errors && warnings ? `and ${warnings} warning${warnings > 1 ? "s" : ""}` : "", errors ? "bad" : warnings ? "warn" : "good"],
  ];
  sync(byId("tiles"), tiles, (tile) => tile[0], () => el("div", {}, el("span"), el("b"), el("small")), (node, [name, value, note, level]) => {
    node.className = `tile ${level}`;
    [name, value, note].forEach((text, index) => { node.children[index].textContent = text; });
  });
  byId("cluster").textContent = snapshot.brokers.length ? `${snapshot.brokers.length} broker${snapshot.brokers.length > 1 ? "s" : ""} · ${snapshot.brokers[0].host}:${snapshot.brokers[0].port}` : "cluster not known yet";
}

function stateBadge(group) {
  const text = group.error ? "unreadable" : group.state ?? "unknown";
  const level = group.error ? "bad" : group.is_rebalancing ? "warn busy" : /^stable$/i.test(text) ? "good" : "";
  return el("span", { class: `badge ${level}`, text: text.replace(/([a-z])([A-Z])/g, "$1 $2") });
}

function kindText(kind) {
  return { consumer: "KIP-848", zookeeper: "ZooKeeper" }[kind] ?? kind;
}

/* --- groups --- */
function select(key) {
  state.selected = key;
  history.replaceState(null, "", `#${encodeURIComponent(key)}`);
  show();
}

function showGroups(snapshot) {
  const words = byId("filter").value.trim().toLowerCase();
  const groups = snapshot.groups.filter((group) => group.group.toLowerCase().includes(words));
  groups.sort((one, other) => (other.members.length > 0) - (one.members.length > 0) || (one.group < other.group ? -1 : 1));
  byId("group-count").textContent = snapshot.hidden_groups ? `${groups.length} shown, ${snapshot.hidden_groups} more` : `${groups.length}`;
  byId("no-groups").hidden = groups.length > 0;
  if (groups.length && !snapshot.groups.some((group) => keyOf(group) === state.selected)) state.selected = keyOf(groups[0]);
  sync(byId("groups"), groups, keyOf, (group) => {
    const row = el("tr", { onclick: () => select(keyOf(group)) });
    for (const name of ["", "", "n wide", "n", "n", "n wide", "n wide", "trend"]) row.append(el("td", { class: name }));
    row.children[0].append(el("div", { class: "name" }, el("button", { type: "button", text: group.group }), el("span", { class: "badge kind", text: kindText(group.kind) })));
    return row;
  }, (row, group) => {
    const point = group.point ?? [], cells = row.children;
    row.className = keyOf(group) === state.selected ? "selected" : "";
    row.setAttribute("aria-selected", String(keyOf(group) === state.selected));
    cells[1].replaceChildren(stateBadge(group));
    cells[2].textContent = group.members.length || "–";
    cells[3].textContent = count(point[1]);
    cells[4].textContent = age(point[2]);
    cells[5].textContent = rate(point[3]);
    cells[6].textContent = rate(point[4]);
    cells[7].replaceChildren(sparkline(state.points.get(keyOf(group)), 1));
  });
}

/* --- detail of one group --- */
function showDetail(snapshot) {
  const group = snapshot.groups.find((each) => keyOf(each) === state.selected);
  byId("detail").hidden = !group;
  if (!group) return;
  const key = keyOf(group), points = state.points.get(key) ?? [], point = group.point ?? [];
  byId("detail-name").textContent = group.group;
  byId("detail-badges").replaceChildren(stateBadge(group), el("span", { class: "badge kind", text: kindText(group.kind) }), ...(group.assignor ? [el("span", { class: "badge kind", text: group.assignor })] : []));
  byId("lag-value").textContent = count(point[1]);
  byId("age-value").textContent = age(point[2]);
  byId("consumed-value").textContent = rate(point[3]);
  byId("produced-value").textContent = rate(point[4]);
  const bands = snapshot.timeline.filter((band) => band.group === group.group);
  for (const chart of Object.values(charts)) chart.show(points, bands);
  showMap(group, snapshot);
  showMembers(group);
  showPartitions(group);
}

function showMap(group, snapshot) {
  const key = keyOf(group), topics = new Map();
  for (const row of group.partitions) topics.set(row.topic, [...(topics.get(row.topic) ?? []), row]);
  const names = new Map(group.members.map((member) => [member.member_id, nameOf(member)]));
  const most = Math.max(1, ...group.partitions.map((row) => row.lag ?? 0));
  const free = group.partitions.filter((row) => !row.member_id).length;
  byId("map-note").textContent = group.partitions.length === 0 ? "No partitions." :
    `Each box is a partition in the color of its owner; the bar is its lag. ${free ? `${free} without an owner.` : "All have an owner."}${group.hidden_partitions ? ` ${group.hidden_partitions} with less lag are not shown.` : ""}`;
  sync(byId("map"), [...topics], ([topic]) => topic, ([topic]) => el("div", { class: "topic" }, el("b", { text: topic }), el("div", { class: "cells" }), el("span")), (node, [topic, rows]) => {
    const paused = snapshot.paused.includes(topic);
    const actions = ["pause", "resume"].filter((name) => snapshot.actions.includes(name) && state.token && (name === "resume") === paused);
    node.children[2].replaceChildren(...actions.map((name) => el("button", { class: "button small", type: "button", text: name === "pause" ? "Pause" : "Resume", onclick: () => act(name, topic) })));
    sync(node.children[1], rows, (row) => String(row.partition), (row) => el("div", {}, document.createTextNode(String(row.partition)), el("i")), (cell, row) => {
      const moved = Date.now() - (state.movedAt.get(`${key}/${topic}/${row.partition}`) ?? 0) < 5000;
      const owner = row.member_id ? `m${colorOf(key, row.member_id)}` : "free";
      const name = `cell ${owner}${moved ? " moved" : ""}${paused ? " paused" : ""}`;
      if (cell.className !== name) cell.className = name;
      cell.title = `${topic}[${row.partition}] · ${row.member_id ? names.get(row.member_id) ?? row.member_id : "no owner"} · lag ${count(row.lag)} · ${age(row.lag_seconds)}`;
      cell.lastElementChild.style.setProperty("--fill", `${Math.round(((row.lag ?? 0) / most) * 100)}%`);
    });
  });
}

function showMembers(group) {
  const key = keyOf(group), totals = new Map();
  for (const row of group.partitions) {
    if (!row.member_id) continue;
    const total = totals.get(row.member_id) ?? { partitions: 0, lag: 0, age: null };
    total.partitions += 1;
    total.lag += row.lag ?? 0;
    if (row.lag_seconds !== null) total.age = Math.max(total.age ?? 0, row.lag_seconds);
    totals.set(row.member_id, total);
  }
  byId("no-members").hidden = group.members.length > 0;
  sync(byId("members"), group.members, (member) => member.member_id, (member) => {
    const row = el("tr", {}, el("td"), el("td", { class: "wide", text: (member.host ?? "–").replace(/^\//, "") }), el("td", { class: "n" }), el("td", { class: "n" }), el("td", { class: "n" }));
    row.children[0].append(el("div", { class: "member" }, el("i", { class: `chip m${colorOf(key, member.member_id)}` }), el("div", {}, el("b", { text: nameOf(member) }), el("span", { class: "sub", text: member.member_id }))));
    return row;
  }, (row, member) => {
    const total = totals.get(member.member_id) ?? { partitions: 0, lag: 0, age: null };
    row.querySelector("i").className = `chip m${colorOf(key, member.member_id)}`;
    [total.partitions, count(total.lag), age(total.age)].forEach((text, index) => { row.children[index + 2].textContent = text; });
  });
}

function showPartitions(group) {
  const names = new Map(group.members.map((member) => [member.member_id, nameOf(member)])), key = keyOf(group);
  byId("partition-count").textContent = group.partitions.length;
  if (!byId("partitions").closest("details").open) return;
  sync(byId("partitions"), group.partitions, (row) => `${row.topic}/${row.partition}`, (row) => {
    const node = el("tr");
    for (const name of ["", "n wide", "n wide", "n", "n", ""]) node.append(el("td", { class: name }));
    node.children[0].textContent = `${row.topic}[${row.partition}]`;
    return node;
  }, (node, row) => {
    [count(row.committed), count(row.end), count(row.lag), age(row.lag_seconds)].forEach((text, index) => { node.children[index + 1].textContent = text; });
    node.children[1].title = row.committed ?? "";
    node.children[2].title = row.end ?? "";
    const owner = row.member_id;
    node.children[5].replaceChildren(el("i", { class: owner ? `chip m${colorOf(key, owner)}` : "chip none" }), document.createTextNode(owner ? names.get(owner) ?? owner : "no owner"));
  });
}
byId("partitions").closest("details").addEventListener("toggle", () => show());

/* --- lists --- */
function item() {
  return el("li", {}, el("span", { class: "mark" }), el("b"), el("span", { class: "side" }), el("span", { class: "text" }));
}

function showHealth(snapshot) {
  const reasons = snapshot.health.length ? snapshot.health : [{ level: "ok", subject: "All good", text: "All groups make progress." }];
  sync(byId("health"), reasons, (reason) => `${reason.level}/${reason.subject}/${reason.text.replace(/\d[\d,.]*/g, "#")}`, item, (node, reason) => {
    node.children[0].className = `mark ${reason.level}`;
    node.children[1].textContent = reason.subject;
    node.children[2].textContent = reason.level === "ok" ? "" : reason.level;
    node.children[3].textContent = reason.text;
  });
}

function showWorkers(snapshot) {
  const workers = Object.entries(snapshot.workers);
  byId("workers-card").hidden = workers.length === 0;
  byId("workers-title").textContent = workers.length === 1 && workers[0][0] === "" ? "This app" : "Workers";
  sync(byId("workers"), workers, ([name]) => name || "app", item, (node, [name, status]) => {
    const handlers = Object.values(status.handlers), total = (field) => handlers.reduce((all, each) => all + (each[field] ?? 0), 0);
    node.children[0].className = `mark ${!status.live ? "error" : status.ready ? "ok" : "warning"}`;
    node.children[1].textContent = name ? `Worker ${name}` : status.group ?? "app";
    node.children[2].textContent = status.state;
    node.children[3].textContent = status.reason ?? (handlers.length ? `${count(total("finished"))} processed, ${count(total("in_flight"))} in flight, ${count(total("failed"))} failed` : "ready");
  });
}

function changesOf(record) {
  const parts = [];
  if (record.joined.length) parts.push(el("span", { class: "plus", text: `+${record.joined.length} joined` }));
  if (record.departed.length) parts.push(el("span", { class: "minus", text: `−${record.departed.length} gone` }));
  parts.push(document.createTextNode(`${record.moved} partition${record.moved === 1 ? "" : "s"} moved, ${record.members} member${record.members === 1 ? "" : "s"}`));
  return parts.flatMap((part, index) => (index ? [document.createTextNode(" · "), part] : [part]));
}

function showTimeline(snapshot) {
  byId("rebalance-count").textContent = snapshot.timeline.length || "";
  byId("no-rebalances").hidden = snapshot.timeline.length > 0;
  sync(byId("timeline"), snapshot.timeline, (record) => `${record.time}/${record.group}`, item, (node, record) => {
    const running = record.seconds === null;
    node.children[0].className = `mark ${running ? "warning" : "ok"}`;
    node.children[1].textContent = record.group;
    node.children[2].textContent = `${clock(record.time)} · ${running ? "running" : record.seconds < 0.05 ? "at once" : age(record.seconds)}`;
    node.children[3].replaceChildren(...changesOf(record));
  });
}

function showDead(snapshot) {
  byId("dead-count").textContent = snapshot.dead_letters.length ? `${snapshot.dead_letters.length} topic${snapshot.dead_letters.length > 1 ? "s" : ""}` : "";
  byId("no-dead").hidden = snapshot.dead_letters.length > 0;
  sync(byId("dead"), snapshot.dead_letters, (row) => row.topic, item, (node, row) => {
    node.children[0].className = `mark ${row.open ? "warning" : "ok"}`;
    node.children[1].textContent = row.topic;
    const replay = snapshot.actions.includes("replay") && state.token && row.open;
    node.children[2].replaceChildren(replay ? el("button", { class: "button small", type: "button", text: "Replay", onclick: () => act("replay", row.topic) }) : document.createTextNode(row.last_written ? clock(row.last_written) : ""));
    const error = row.last_error ? ` Last: ${row.last_error}${row.last_source ? ` at ${row.last_source}` : ""}.` : "";
    node.children[3].textContent = `${count(row.open)} not done, ${count(row.records)} in the topic.${error}`;
  });
}

/* --- changes with a token --- */
function toast(text) {
  byId("toast").textContent = text;
  byId("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { byId("toast").hidden = true; }, 6000);
}

async function act(name, topic) {
  if (name === "replay" && !confirm(`Send all dead letters of ${topic} back to their topics?`)) return;
  try {
    const response = await fetch(`actions/${name}`, { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${state.token}` }, body: JSON.stringify({ topic }) });
    const answer = await response.json();
    if (response.status === 403) state.token = null;
    toast(answer.message);
  } catch (error) {
    toast(`The request failed: ${error.message}`);
  }
  show();
}

byId("unlock").addEventListener("click", () => {
  if (state.token) { state.token = null; show(); return; }
  byId("token").value = "";
  byId("token-dialog").showModal();
});
byId("token-dialog").addEventListener("close", () => {
  if (byId("token-dialog").returnValue === "ok") state.token = byId("token").value.trim() || null;
  byId("token").value = "";
  show();
});

/* --- connection --- */
function showLink() {
  const snapshot = state.snapshot, silent = (performance.now() - state.received) / 1000;
  let level = "", text = "Connecting", banner = "";
  if (!state.connected && snapshot) {
    [level, text] = ["bad", "Disconnected"];
    banner = `No connection to the dashboard. The data is ${age(silent)} old. Reconnecting.`;
  } else if (snapshot && snapshot.error) {
    [level, text] = ["warn", "Unreachable"];
    banner = `Kafka is not reachable. The data is ${age(snapshot.age + silent)} old, and the dashboard keeps trying. ${snapshot.error[0].toUpperCase()}${snapshot.error.slice(1)}`;
  } else if (snapshot && silent > 8 + 3 * snapshot.interval) {
    [level, text] = ["warn", "Waiting"];
    banner = `There was no update for ${age(silent)}.`;
  } else if (snapshot) [level, text] = ["good", "Live"];
  byId("link").className = `pill ${level}`;
  byId("link").lastElementChild.textContent = text;
  byId("banner").hidden = !banner;
  byId("banner").className = level === "bad" ? "bad" : "";
  byId("banner").textContent = banner;
  document.body.classList.toggle("outdated", Boolean(banner));
}

function show() {
  const snapshot = state.snapshot;
  showLink();
  if (!snapshot) return;
  byId("unlock").hidden = snapshot.actions.length === 0;
  byId("unlock").textContent = state.token ? "Lock" : "Unlock";
  showTiles(snapshot);
  showGroups(snapshot);
  showDetail(snapshot);
  showHealth(snapshot);
  showWorkers(snapshot);
  showTimeline(snapshot);
  showDead(snapshot);
}

function connect() {
  const source = new EventSource("events");
  source.addEventListener("open", () => { state.connected = true; });
  source.addEventListener("history", (event) => { state.points = new Map(Object.entries(JSON.parse(event.data))); });
  source.addEventListener("snapshot", (event) => {
    const snapshot = JSON.parse(event.data);
    state.snapshot = snapshot;
    state.received = performance.now();
    state.connected = true;
    for (const group of snapshot.groups) {
      noteOwners(group);
      const points = state.points.get(keyOf(group)) ?? [];
      if (group.point && (!points.length || points[points.length - 1][0] < group.point[0])) points.push(group.point);
      state.points.set(keyOf(group), points.slice(-MAX_POINTS));
    }
    show();
  });
  source.addEventListener("error", () => {
    state.connected = false;
    showLink();
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 2000); }
  });
}
byId("filter").addEventListener("input", () => show());
addEventListener("resize", () => show());
setInterval(showLink, 1000);
connect();
