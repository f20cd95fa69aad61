import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerFetcherManager;

/**
 * A program that calls Java and Kafka. A question is a line of fields separated by tabs.
 *
 * hash HEX                         answers String.hashCode of UTF-16 units given in hexadecimal
 * compare HEX HEX                  answers the sign of String.compareTo
 * fetcher COUNT TOPIC PARTITION    answers which fetcher of a broker reads the partition
 */
public final class RealFetchers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            String[] words = line.split("\t");
            System.out.println(switch (words[0]) {
                case "hash" -> text(words[1]).hashCode();
                case "compare" -> Integer.signum(text(words[1]).compareTo(text(words[2])));
                case "fetcher" -> fetcher(words[1], words[2], Integer.parseInt(words[3]));
                default -> throw new IllegalArgumentException(line);
            });
        }
    }

    private static int fetcher(String count, String topic, int partition) {
        Properties properties = new Properties();
        properties.setProperty("group.id", "g");
        properties.setProperty("zookeeper.connect", "unused");
        properties.setProperty("num.consumer.fetchers", count);
        return new ConsumerFetcherManager("g_c", new ConsumerConfig(properties), null).getFetcherId(topic, partition);
    }

    private static String text(String hexadecimal) {
        char[] units = new char[hexadecimal.length() / 4];
        for (int i = 0; i < units.length; i++) {
            units[i] = (char) Integer.parseInt(hexadecimal.substring(4 * i, 4 * i + 4), 16);
        }
        return new String(units);
    }
}
