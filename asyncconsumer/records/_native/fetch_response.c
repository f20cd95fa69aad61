/* fetch_answer: a walk over a whole fetch response that leaves the records where they are.

   The first thing that does not hold is remembered with its place, and every read after it gives
   zero without moving; so the walk needs no check after each field, only where it would loop. */

#include "native.h"

enum {
    FIRST_VERSION = 4,
    LAST_VERSION = 17,
    WITH_LOG_START = 5,
    WITH_SESSION = 7,
    WITH_PREFERRED_REPLICA = 11,
    FLEXIBLE = 12,
    WITH_TOPIC_ID = 13,
    /* the least bytes that one element of an array takes, so that a count cannot ask for memory */
    LEAST_TOPIC = 3,
    LEAST_PARTITION = 22,
    LEAST_ABORTED = 16,
    LEAST_ENDPOINT = 11,
    LEAST_TAG = 2,
    /* and the most that is not records, plus a part of the frame: of each few bytes an object is made.
       Aborted transactions grow with the records, and take a part of their bytes at the most. */
    MOST_BESIDES = 4 << 20,
    BESIDES_PART = 16,
};

static PyObject *malformed_response;
static PyTypeObject *FetchAnswer_Type, *PartitionAnswer_Type;

typedef struct {
    const uint8_t *start;
    Reader r;
    int version;
    int64_t records;        /* bytes of the record sets passed so far */
    int64_t most_besides;   /* bytes that are not records */
    Reason bad;             /* NULL: all well so far */
    const uint8_t *bad_at;
} Walk;

typedef struct {
    int64_t at, end;        /* both 0: there is no such thing */
} Extent;

static void fail(Walk *w, Reason reason, const uint8_t *at)
{
    if (w->bad == NULL) {
        w->bad = reason;
        w->bad_at = at;
    }
    w->r.end = w->r.position; /* nothing more is read */
}

/* Fails if what was read so far, and what is to be read, is too much besides records. */
static void check_besides(Walk *w, int64_t more)
{
    if (w->bad == NULL && w->r.position - w->start - w->records + more > w->most_besides)
        fail(w, "too many bytes outside of its record sets", w->r.position);
}

/* --- fields ---------------------------------------------------------------------------------------- */

static const uint8_t *take(Walk *w, int64_t length)
{
    static const uint8_t zeros[16];
    const uint8_t *at = w->r.position;
    if (w->bad != NULL || bytes_left(&w->r) < length) {
        fail(w, REASON_CUT_OFF, at);
        return zeros;
    }
    w->r.position += length;
    return at;
}

static int16_t take_int16(Walk *w) { return int16_at(take(w, 2)); }
static int32_t take_int32(Walk *w) { return int32_at(take(w, 4)); }
static int64_t take_int64(Walk *w) { return int64_at(take(w, 8)); }

static int64_t take_varint(Walk *w)
{
    const uint8_t *at = w->r.position;
    uint64_t value = 0;
    Reason bad = w->bad ? w->bad : read_unsigned_varint(&w->r, 32, &value);
    if (bad == NULL)
        return (int64_t)value;
    fail(w, bad, at);
    return 0;
}

/* A length of things of at least `least` bytes each; -1 is null. `narrow`: two bytes in old versions. */
static int64_t take_length(Walk *w, int64_t least, bool narrow)
{
    const uint8_t *at = w->r.position;
    int64_t length = w->version >= FLEXIBLE ? take_varint(w) - 1 : narrow ? take_int16(w) : take_int32(w);
    if (w->bad != NULL)
        return 0;
    if (length < -1)
        fail(w, "a negative length", at);
    else if (length > bytes_left(&w->r) / least)
        fail(w, "a length that goes beyond the end", at);
    else
        return length;
    return 0;
}

static int64_t take_count(Walk *w, int64_t least)
{
    const uint8_t *at = w->r.position;
    int64_t count = take_length(w, least, false);
    if (count < 0)
        fail(w, "an array that is null", at);
    return count < 0 ? 0 : count;
}

/* New str, or None for null; NULL with an exception only when memory is short. */
static PyObject *take_text(Walk *w)
{
    const uint8_t *at = w->r.position;
    int64_t length = take_length(w, 1, true);
    if (length < 0)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)take(w, length), (Py_ssize_t)length, NULL);
    if (text != NULL || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return text;
    PyErr_Clear();
    fail(w, "a string that is not UTF-8", at);
    Py_RETURN_NONE;
}

/* --- tagged fields ------------------------------------------------------------------------------------ */

/* Notes where the tags below `known` lie; passes over the other ones. */
static void take_tags(Walk *w, Extent *found, int known)
{
    for (int i = 0; i < known; i++)
        found[i] = (Extent){0, 0};
    if (w->version < FLEXIBLE || w->bad != NULL)
        return;
    const uint8_t *at = w->r.position;
    int64_t count = take_varint(w);
    if (count > bytes_left(&w->r) / LEAST_TAG)
        fail(w, "a length that goes beyond the end", at);
    for (; count > 0 && w->bad == NULL; count--) {
        int64_t tag = take_varint(w);
        at = w->r.position;
        int64_t size = take_varint(w);
        if (size > bytes_left(&w->r))
            fail(w, "a length that goes beyond the end", at);
        if (w->bad == NULL && tag < known)
            found[tag] = (Extent){w->r.position - w->start, w->r.position - w->start + size};
        if (w->bad == NULL)
            w->r.position += size;
    }
}

/* A walk inside a tagged field, which must end where the field ends. */
static Walk inside(const Walk *w, Extent tag)
{
    Walk inner = *w;
    inner.r = (Reader){w->start + tag.at, w->start + tag.end};
    return inner;
}

static void leave(Walk *w, Walk *inner, Extent tag)
{
    if (inner->bad == NULL && inner->r.position != w->start + tag.end)
        fail(inner, "a tagged field that is longer than its content", inner->r.position);
    if (inner->bad != NULL)
        fail(w, inner->bad, inner->bad_at);
}

static PyObject *pair_in(Walk *w, Extent tag, bool wide)
{
    if (tag.end == 0)
        Py_RETURN_NONE;
    Walk inner = inside(w, tag);
    long long first = take_int32(&inner), second = wide ? take_int64(&inner) : take_int32(&inner);
    take_tags(&inner, NULL, 0);
    leave(w, &inner, tag);
    return Py_BuildValue("(LL)", first, second);
}

static PyObject *take_endpoint(Walk *w)
{
    int32_t node = take_int32(w);
    PyObject *host = take_text(w);
    int32_t port = take_int32(w);
    PyObject *rack = host ? take_text(w) : NULL, *endpoint = NULL;
    take_tags(w, NULL, 0);
    if (rack != NULL)
        endpoint = Py_BuildValue("(iOiO)", node, host, port, rack);
    Py_XDECREF(host);
    Py_XDECREF(rack);
    return endpoint;
}

static int append_new(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return -1;
    int done = PyList_Append(list, item);
    Py_DECREF(item);
    return done;
}

static PyObject *endpoints_in(Walk *w, Extent tag)
{
    PyObject *endpoints = PyList_New(0);
    if (tag.end == 0 || endpoints == NULL)
        return endpoints;
    Walk inner = inside(w, tag);
    for (int64_t count = take_count(&inner, LEAST_ENDPOINT); count > 0 && inner.bad == NULL; count--)
        if (append_new(endpoints, take_endpoint(&inner)) < 0) {
            Py_DECREF(endpoints);
            return NULL;
        }
    leave(w, &inner, tag);
    return endpoints;
}

/* --- the response ---------------------------------------------------------------------------------------- */

static PyObject *take_aborted(Walk *w)
{
    int64_t count = take_length(w, LEAST_ABORTED, false);
    if (count < 0)
        Py_RETURN_NONE;
    check_besides(w, count * LEAST_ABORTED);
    PyObject *aborted = PyList_New(0);
    for (; aborted != NULL && count > 0 && w->bad == NULL; count--) {
        long long producer = take_int64(w), first = take_int64(w);
        take_tags(w, NULL, 0);
        if (append_new(aborted, Py_BuildValue("(LL)", producer, first)) < 0)
            Py_CLEAR(aborted);
    }
    return aborted;
}

/* Fills a new struct sequence; steals the fields, any of which may be NULL. */
static PyObject *filled(PyTypeObject *type, PyObject **fields, int count)
{
    PyObject *made = PyStructSequence_New(type);
    bool whole = made != NULL;
    for (int i = 0; i < count; i++) {
        whole = whole && fields[i] != NULL;
        if (made != NULL)
            PyStructSequence_SetItem(made, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    }
    if (!whole)
        Py_CLEAR(made);
    return made;
}

static PyObject *take_partition(Walk *w, PyObject *topic)
{
    int32_t partition = take_int32(w);
    int16_t error = take_int16(w);
    int64_t high = take_int64(w), stable = take_int64(w);
    int64_t first = w->version >= WITH_LOG_START ? take_int64(w) : -1;
    PyObject *aborted = take_aborted(w);
    int32_t replica = w->version >= WITH_PREFERRED_REPLICA ? take_int32(w) : -1;
    int64_t length = take_length(w, 1, false);
    int64_t start = w->r.position - w->start;
    take(w, length < 0 ? 0 : length);
    int64_t end = w->r.position - w->start;
    w->records += end - start;
    Extent tags[2];
    take_tags(w, tags, 2);
    PyObject *leader = pair_in(w, tags[1], false), *diverging = pair_in(w, tags[0], true);
    PyObject *fields[] = {
        Py_NewRef(topic), PyLong_FromLong(partition), PyLong_FromLong(error), PyLong_FromLongLong(high),
        PyLong_FromLongLong(stable), PyLong_FromLongLong(first), aborted, PyLong_FromLong(replica),
        leader, diverging, PyLong_FromLongLong(start), PyLong_FromLongLong(end),
    };
    return filled(PartitionAnswer_Type, fields, 12);
}

static PyObject *take_topic(Walk *w)
{
    if (w->version < WITH_TOPIC_ID)
        return take_text(w);
    return PyBytes_FromStringAndSize((const char *)take(w, 16), 16);
}

static int take_partitions(Walk *w, PyObject *partitions)
{
    int64_t topics = take_count(w, LEAST_TOPIC);
    for (; topics > 0 && w->bad == NULL; topics--) {
        const uint8_t *at = w->r.position;
        PyObject *topic = take_topic(w);
        if (topic == NULL)
            return -1;
        if (topic == Py_None)
            fail(w, "a topic without a name", at);
        int64_t count = take_count(w, LEAST_PARTITION);
        int done = 0;
        for (; done == 0 && count > 0 && w->bad == NULL; count--) {
            done = append_new(partitions, take_partition(w, topic));
            check_besides(w, 0);
        }
        Py_DECREF(topic);
        if (done < 0)
            return -1;
        take_tags(w, NULL, 0);
    }
    return 0;
}

static PyObject *take_answer(Walk *w)
{
    PyObject *partitions = PyList_New(0);
    if (partitions == NULL)
        return NULL;
    int32_t throttle = take_int32(w);
    int16_t error = w->version >= WITH_SESSION ? take_int16(w) : 0;
    int32_t session = w->version >= WITH_SESSION ? take_int32(w) : 0;
    if (take_partitions(w, partitions) < 0) {
        Py_DECREF(partitions);
        return NULL;
    }
    Extent tags[1];
    take_tags(w, tags, 1);
    if (w->bad == NULL && bytes_left(&w->r) > 0)
        fail(w, "bytes after its end", w->r.position);
    check_besides(w, 0);
    PyObject *fields[] = {
        PyLong_FromLong(throttle), PyLong_FromLong(error), PyLong_FromLong(session), partitions,
        endpoints_in(w, tags[0]),
    };
    return filled(FetchAnswer_Type, fields, 5);
}

PyObject *fetch_answer(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"frame", "version", NULL};
    Py_buffer view;
    int version;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*i:fetch_answer", names, &view, &version))
        return NULL;
    if (version < FIRST_VERSION || version > LAST_VERSION) {
        PyErr_Format(PyExc_ValueError, "fetch version %d is not one of %d to %d", version, FIRST_VERSION,
                     LAST_VERSION);
        PyBuffer_Release(&view);
        return NULL;
    }
    const uint8_t *start = view.buf;
    Walk walk = {start, {start, start + view.len}, version, 0, MOST_BESIDES + view.len / BESIDES_PART, NULL, NULL};
    PyObject *answer = take_answer(&walk);
    if (answer != NULL && walk.bad != NULL) {
        Py_CLEAR(answer);
        PyObject *error = PyObject_CallFunction(malformed_response, "sins", "Fetch", version,
                                                (Py_ssize_t)(walk.bad_at - start), walk.bad);
        if (error != NULL)
            PyErr_SetObject(malformed_response, error);
        Py_XDECREF(error);
    }
    PyBuffer_Release(&view);
    return answer;
}

/* --- the types ---------------------------------------------------------------------------------------------- */

static PyStructSequence_Field partition_fields[] = {
    {"topic", "Its name, or the 16 bytes of its id from version 13 on."},
    {"partition", NULL},
    {"error_code", NULL},
    {"high_watermark", NULL},
    {"last_stable_offset", NULL},
    {"log_start_offset", NULL},
    {"aborted", "Pairs of producer id and first offset, or None."},
    {"preferred_read_replica", NULL},
    {"current_leader", "Id and epoch, or None."},
    {"diverging_epoch", "Epoch and end offset, or None."},
    {"start", "Where its record set begins in the frame."},
    {"end", "Where its record set ends in the frame."},
    {NULL, NULL},
};

static PyStructSequence_Field answer_fields[] = {
    {"throttle_ms", NULL},
    {"error_code", NULL},
    {"session_id", NULL},
    {"partitions", "A list of PartitionAnswer."},
    {"node_endpoints", "Node id, host, port and rack of leaders that were named."},
    {NULL, NULL},
};

static PyStructSequence_Desc partition_description = {
    "asyncconsumer.records._records.PartitionAnswer", "One partition of a fetch response.", partition_fields, 12,
};

static PyStructSequence_Desc answer_description = {
    "asyncconsumer.records._records.FetchAnswer", "A fetch response, its records left in the frame.",
    answer_fields, 5,
};

int answer_prepare(PyObject *module)
{
    PyObject *errors = PyImport_ImportModule("asyncconsumer.errors");
    malformed_response = errors ? PyObject_GetAttrString(errors, "MalformedResponse") : NULL;
    Py_XDECREF(errors);
    FetchAnswer_Type = PyStructSequence_NewType(&answer_description);
    PartitionAnswer_Type = PyStructSequence_NewType(&partition_description);
    if (malformed_response == NULL || FetchAnswer_Type == NULL || PartitionAnswer_Type == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "PartitionAnswer", (PyObject *)PartitionAnswer_Type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "FetchAnswer", (PyObject *)FetchAnswer_Type);
}
