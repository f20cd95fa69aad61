import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.ConsumerRebalanceListener;
import kafka.message.MessageAndMetadata;
import scala.collection.JavaConverters;

/**
 * One member of a group, with the ZooKeeper consumer of Kafka 1.1 and older. It writes its events
 * to a file.
 *
 * Arguments: the file of its properties, the file to write events to (one JSON object per line),
 * the kind of its subscription (static, white_list, black_list), then pairs of a topic or pattern
 * and its number of streams. SIGTERM closes it.
 */
public final class ClassicConsumer implements ConsumerRebalanceListener {
    private final ObjectMapper json = new ObjectMapper();
    private final BufferedWriter events;

    private ClassicConsumer(Path events) throws IOException {
        this.events = Files.newBufferedWriter(events, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader written = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(written);
        }
        Map<String, Integer> wanted = new LinkedHashMap<>();
        for (int i = 3; i < arguments.length; i += 2) {
            wanted.put(arguments[i], Integer.valueOf(arguments[i + 1]));
        }
        new ClassicConsumer(Path.of(arguments[1])).run(properties, arguments[2], wanted);
    }

    private void run(Properties properties, String kind, Map<String, Integer> wanted) throws Exception {
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            connector.shutdown();
            tell(Map.of("event", "stopped"));
        }));
        connector.setConsumerRebalanceListener(this);
        List<Thread> readers = new ArrayList<>();
        for (KafkaStream<byte[], byte[]> stream : streams(connector, kind, wanted)) {
            int number = readers.size();
            readers.add(new Thread(() -> read(stream, number), "stream-" + number));
        }
        tell(Map.of("event", "ready"));
        readers.forEach(Thread::start);
        for (Thread reader : readers) {
            reader.join();
        }
    }

    private static List<KafkaStream<byte[], byte[]>> streams(
            ConsumerConnector connector, String kind, Map<String, Integer> wanted) {
        if (kind.equals("static")) {
            Map<String, List<KafkaStream<byte[], byte[]>>> made = connector.createMessageStreams(wanted);
            return wanted.keySet().stream().flatMap(topic -> made.get(topic).stream()).toList();
        }
        Map.Entry<String, Integer> filter = wanted.entrySet().iterator().next();
        return connector.createMessageStreamsByFilter(
                kind.equals("white_list") ? new Whitelist(filter.getKey()) : new Blacklist(filter.getKey()),
                filter.getValue());
    }

    private void read(KafkaStream<byte[], byte[]> stream, int number) {
        var messages = stream.iterator();
        while (true) {
            try {
                if (!messages.hasNext()) {
                    return;
                }
                tell(record(messages.next(), number));
            } catch (ConsumerTimeoutException nothingCame) {
                // the iterator can continue after consumer.timeout.ms
            }
        }
    }

    private static Map<String, Object> record(MessageAndMetadata<byte[], byte[]> message, int stream) {
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("event", "record");
        record.put("topic", message.topic());
        record.put("partition", message.partition());
        record.put("offset", message.offset());
        record.put("key", hexadecimal(message.key()));
        record.put("value", hexadecimal(message.message()));
        record.put("stream", stream);
        record.put("at_ms", System.currentTimeMillis());
        return record;
    }

    private static String hexadecimal(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    @Override
    public void beforeReleasingPartitions(Map<String, Set<Integer>> owned) {
        Map<String, Collection<Integer>> partitions = new TreeMap<>();
        for (Map.Entry<String, ?> of : owned.entrySet()) {
            partitions.put(of.getKey(), javaCollection(of.getValue()));
        }
        tell(Map.of("event", "releasing", "partitions", partitions));
    }

    /** Convert a set. Kafka passes a Scala set, although the type says otherwise. */
    @SuppressWarnings("unchecked")
    private static Collection<Integer> javaCollection(Object numbers) {
        return numbers instanceof Collection<?> collection
                ? (Collection<Integer>) collection
                : JavaConverters.asJavaCollection((scala.collection.Iterable<Integer>) numbers);
    }

    @Override
    public void beforeStartingFetchers(String consumer, Map<String, Map<Integer, ConsumerThreadId>> group) {
        Map<String, Map<Integer, String>> owners = new TreeMap<>();
        group.forEach((topic, threads) -> threads.forEach((partition, thread) ->
                owners.computeIfAbsent(topic, t -> new TreeMap<>()).put(partition, thread.toString())));
        tell(Map.of("event", "starting", "owners", owners));
    }

    private synchronized void tell(Map<String, Object> event) {
        try {
            events.write(json.writeValueAsString(event) + "\n");
            events.flush();
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
