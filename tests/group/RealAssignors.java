import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

import kafka.consumer.AssignmentContext;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerFetcherManager;
import kafka.consumer.PartitionAssignor;
import kafka.utils.ZkUtils;
import scala.collection.JavaConverters;

/**
 * Asks Kafka's own classes, one question a line of standard input, fields separated by tabs.
 *
 * node PATH DATA                    writes a node into ZooKeeper; no answer
 * assign STRATEGY GROUP CONSUMER    answers "CONSUMER TOPIC PARTITION THREAD" for each partition, then "."
 * hash HEX                          answers String.hashCode of UTF-16 units given in hexadecimal
 * compare HEX HEX                   answers the sign of String.compareTo
 * fetcher COUNT TOPIC PARTITION     answers which fetcher of a broker reads it
 *
 * Arguments: where ZooKeeper is, and the path there below which to work.
 */
public final class RealAssignors {
    public static void main(String[] arguments) throws Exception {
        ZkUtils root = ZkUtils.apply(arguments[0], 30_000, 30_000, false);
        root.createPersistentPath(arguments[1], "", root.defaultAcls(arguments[1]));
        root.close();
        ZkUtils zk = ZkUtils.apply(arguments[0] + arguments[1], 30_000, 30_000, false);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = questions.readLine()) != null; ) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "node" -> zk.createPersistentPath(words[1], words[2], zk.defaultAcls(words[1]));
                case "assign" -> assign(zk, words[1], words[2], words[3], answers);
                case "hash" -> answers.println(text(words[1]).hashCode());
                case "compare" -> answers.println(Integer.signum(text(words[1]).compareTo(text(words[2]))));
                case "fetcher" -> answers.println(fetcher(zk, words[1], words[2], Integer.parseInt(words[3])));
                default -> throw new IllegalArgumentException(line);
            }
        }
        zk.close();
    }

    private static void assign(ZkUtils zk, String strategy, String group, String consumer, PrintStream answers) {
        AssignmentContext context = new AssignmentContext(group, consumer, true, zk);
        var everyone = PartitionAssignor.createInstance(strategy).assign(context);
        JavaConverters.asJavaIterator(everyone.iterator()).forEachRemaining(member ->
                JavaConverters.mutableMapAsJavaMap(member._2()).forEach((partition, thread) ->
                        answers.println(String.join("\t", member._1(), partition.topic(),
                                String.valueOf(partition.partition()), thread.toString()))));
        answers.println(".");
    }

    private static int fetcher(ZkUtils zk, String count, String topic, int partition) {
        Properties properties = new Properties();
        properties.setProperty("group.id", "g");
        properties.setProperty("zookeeper.connect", "unused");
        properties.setProperty("num.consumer.fetchers", count);
        return new ConsumerFetcherManager("g_c", new ConsumerConfig(properties), zk).getFetcherId(topic, partition);
    }

    private static String text(String hexadecimal) {
        char[] units = new char[hexadecimal.length() / 4];
        for (int i = 0; i < units.length; i++) {
            units[i] = (char) Integer.parseInt(hexadecimal.substring(4 * i, 4 * i + 4), 16);
        }
        return new String(units);
    }
}
