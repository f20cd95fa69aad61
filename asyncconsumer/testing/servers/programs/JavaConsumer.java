import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a group, with the Java client. It writes its events to a file.
 *
 * Arguments: the file of its properties, the file to write events to (one JSON object per line),
 * the milliseconds between commits (0: commit after each poll), the kind of its subscription
 * (topics, pattern), then the topics or the pattern. It commits the records that it has written.
 * SIGTERM closes it.
 */
public final class JavaConsumer implements ConsumerRebalanceListener {
    private final ObjectMapper json = new ObjectMapper();
    private final BufferedWriter events;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> toCommit = new HashMap<>();
    private volatile boolean stopping;
    private boolean ready;

    private JavaConsumer(Path events, Properties properties) throws IOException {
        this.events = Files.newBufferedWriter(events, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        this.consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader written = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(written);
        }
        List<String> wanted = Arrays.asList(arguments).subList(4, arguments.length);
        JavaConsumer member = new JavaConsumer(Path.of(arguments[1]), properties);
        member.endInGoodOrder(Thread.currentThread());
        member.subscribe(arguments[3], wanted);
        member.run(Long.parseLong(arguments[2]));
    }

    private void endInGoodOrder(Thread reading) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            consumer.wakeup();
            try {
                reading.join();
            } catch (InterruptedException impatient) {
                Thread.currentThread().interrupt();
            }
        }));
    }

    private void subscribe(String kind, List<String> wanted) {
        if (kind.equals("pattern")) {
            consumer.subscribe(Pattern.compile(wanted.get(0)), this);
        } else {
            consumer.subscribe(wanted, this);
        }
    }

    private void run(long commitMs) {
        long committed = System.nanoTime();
        try {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    tell(event(record));
                    toCommit.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), ""));
                }
                if (!ready && consumer.groupMetadata().generationId() > 0) {
                    ready = true;
                    tell(Map.of("event", "ready"));
                }
                if (System.nanoTime() - committed >= commitMs * 1_000_000) {
                    commit(toCommit.keySet());
                    committed = System.nanoTime();
                }
            }
        } catch (WakeupException stopped) {
            // SIGTERM calls wakeup()
        } finally {
            consumer.close(Duration.ofSeconds(20)); // revokes its partitions, and so commits
            tell(Map.of("event", "stopped"));
        }
    }

    private void commit(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(toCommit);
        offsets.keySet().retainAll(partitions);
        if (offsets.isEmpty()) {
            return;
        }
        try {
            try {
                consumer.commitSync(offsets);
            } catch (WakeupException stopped) {
                consumer.commitSync(offsets); // a wakeup interrupts only one call
            }
            offsets.forEach(toCommit::remove);
        } catch (KafkaException error) {
            tell(Map.of("event", "commit failed", "error", error.toString()));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        change("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit(partitions);
        toCommit.keySet().removeAll(partitions);
        change("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        toCommit.keySet().removeAll(partitions);
        change("lost", partitions);
    }

    private void change(String kind, Collection<TopicPartition> partitions) {
        Map<String, TreeSet<Integer>> numbers = new TreeMap<>();
        for (TopicPartition partition : partitions) {
            numbers.computeIfAbsent(partition.topic(), topic -> new TreeSet<>()).add(partition.partition());
        }
        tell(Map.of("event", kind, "partitions", numbers));
    }

    private static Map<String, Object> event(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event", "record");
        event.put("topic", record.topic());
        event.put("partition", record.partition());
        event.put("offset", record.offset());
        event.put("key", hexadecimal(record.key()));
        event.put("value", hexadecimal(record.value()));
        event.put("at_ms", System.currentTimeMillis());
        return event;
    }

    private static String hexadecimal(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private void tell(Map<String, Object> event) {
        try {
            events.write(json.writeValueAsString(event) + "\n");
            events.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
