import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import kafka.consumer.AssignmentContext;
import kafka.consumer.PartitionAssignor$;
import kafka.utils.ZkUtils;
import org.apache.zookeeper.ZooDefs.Ids;
import scala.collection.JavaConversions;

/**
 * A program that calls Kafka's own assignors. A question is a line of fields separated by tabs.
 *
 * node PATH DATA                    writes a node into ZooKeeper; no answer
 * assign STRATEGY GROUP CONSUMER    answers "TOPIC PARTITION THREAD" for each partition, then "."; or "refused"
 *
 * Arguments: the address of ZooKeeper, and a path for the nodes.
 */
public final class RealAssignors {
    public static void main(String[] arguments) throws Exception {
        ZkUtils root = ZkUtils.apply(arguments[0], 30_000, 30_000, false);
        root.createPersistentPath(arguments[1], "", Ids.OPEN_ACL_UNSAFE);
        root.close();
        ZkUtils zk = ZkUtils.apply(arguments[0] + arguments[1], 30_000, 30_000, false);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = questions.readLine()) != null; ) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "node" -> zk.createPersistentPath(words[1], words[2], Ids.OPEN_ACL_UNSAFE);
                case "assign" -> assign(zk, words[1], words[2], words[3], answers);
                default -> throw new IllegalArgumentException(line);
            }
        }
        zk.close();
    }

    private static void assign(ZkUtils zk, String strategy, String group, String consumer, PrintStream answers) {
        AssignmentContext context = new AssignmentContext(group, consumer, true, zk);
        try {
            var everyone = PartitionAssignor$.MODULE$.createInstance(strategy).assign(context);
            for (var owned : JavaConversions.asJavaCollection(everyone.values())) {
                JavaConversions.mutableMapAsJavaMap(owned).forEach((partition, thread) -> answers.println(
                        partition.topic() + "\t" + partition.partition() + "\t" + thread));
            }
            answers.println(".");
        } catch (IllegalArgumentException requirement) {
            answers.println("refused");
        }
    }
}
