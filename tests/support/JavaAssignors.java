import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * A program that calls the Java client's own assignors and its "consumer" protocol.
 *
 * A question is a line of JSON on standard input. The answer is a line of JSON. Bytes are hexadecimal.
 * If the classes fail or do not terminate, the answer is {"refused": why}.
 */
public final class JavaAssignors {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = questions.readLine()) != null; ) {
            JsonNode question = json.readTree(line);
            FutureTask<Object> answering = new FutureTask<>(() -> answer(question));
            Thread thread = new Thread(answering);
            thread.setDaemon(true);
            thread.start();
            Object answer;
            try {
                answer = answering.get(5, TimeUnit.SECONDS);
            } catch (ExecutionException refused) {
                answer = Map.of("refused", refused.getCause().toString());
            } catch (TimeoutException endless) {
                answer = Map.of("refused", "it does not come to an end");
            }
            answers.println(json.writeValueAsString(answer));
        }
        answers.flush();
    }

    private static Object answer(JsonNode question) {
        return switch (question.get("ask").asText()) {
            case "assign" -> assign(question);
            case "write subscription" -> hex(ConsumerProtocol.serializeSubscription(
                    subscription(question), question.get("version").shortValue()));
            case "write assignment" -> hex(ConsumerProtocol.serializeAssignment(
                    new Assignment(partitions(question.get("partitions")), bytes(question.get("user_data"))),
                    question.get("version").shortValue()));
            case "read subscription" -> read(ConsumerProtocol.deserializeSubscription(bytes(question.get("bytes"))));
            case "read assignment" -> read(ConsumerProtocol.deserializeAssignment(bytes(question.get("bytes"))));
            case "user data" -> userData(question);
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    /** Returns the assignments that the group leader sends, by member id. */
    private static Map<String, String> assign(JsonNode question) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : question.get("members")) {
            Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes(member.get("metadata")));
            subscription.setGroupInstanceId(Optional.ofNullable(text(member.get("instance"))));
            subscriptions.put(member.get("id").asText(), subscription);
        }
        Map<String, String> answer = new TreeMap<>();
        assignor(question).assign(cluster(question.get("topics")), new GroupSubscription(subscriptions))
                .groupAssignment()
                .forEach((member, assignment) -> answer.put(member, hex(ConsumerProtocol.serializeAssignment(assignment))));
        return answer;
    }

    /** Topics are lists of partitions. A partition is a list of racks of its replicas, or of nulls. */
    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        nodes.put(null, new Node(0, "localhost", 9092));
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks) {
                    replicas.add(nodes.computeIfAbsent(
                            text(rack), name -> new Node(nodes.size(), "localhost", 9092, name)));
                }
                Node[] all = replicas.isEmpty() ? new Node[] {nodes.get(null)} : replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, all[0], all, all));
            }
        });
        return new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static ConsumerPartitionAssignor assignor(JsonNode question) {
        return switch (question.get("assignor").asText()) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(question.toString());
        };
    }

    private static String userData(JsonNode question) {
        ConsumerPartitionAssignor assignor = assignor(question);
        if (!question.get("partitions").isNull()) {
            assignor.onAssignment(
                    new Assignment(partitions(question.get("partitions"))),
                    new ConsumerGroupMetadata("group", question.get("generation").asInt(), "member", Optional.empty()));
        }
        ByteBuffer data = assignor.subscriptionUserData(Set.of());
        return data == null ? null : hex(data);
    }

    private static Subscription subscription(JsonNode question) {
        List<String> topics = new ArrayList<>();
        question.get("topics").forEach(topic -> topics.add(topic.asText()));
        return new Subscription(topics, bytes(question.get("user_data")), partitions(question.get("owned")),
                question.get("generation").asInt(), Optional.ofNullable(text(question.get("rack"))));
    }

    private static Map<String, Object> read(Subscription subscription) {
        Map<String, Object> fields = new HashMap<>();
        fields.put("topics", subscription.topics());
        fields.put("user_data", hex(subscription.userData()));
        fields.put("owned", pairs(subscription.ownedPartitions()));
        fields.put("generation", subscription.generationId().orElse(-1));
        fields.put("rack", subscription.rackId().orElse(null));
        return fields;
    }

    private static Map<String, Object> read(Assignment assignment) {
        Map<String, Object> fields = new HashMap<>();
        fields.put("partitions", pairs(assignment.partitions()));
        fields.put("user_data", hex(assignment.userData()));
        return fields;
    }

    private static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        pairs.forEach(pair -> partitions.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
        return partitions;
    }

    private static List<List<Object>> pairs(List<TopicPartition> partitions) {
        return partitions.stream().map(p -> List.<Object>of(p.topic(), p.partition())).toList();
    }

    private static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static ByteBuffer bytes(JsonNode node) {
        return node.isNull() ? null : ByteBuffer.wrap(HEX.parseHex(node.asText()));
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
