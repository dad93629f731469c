// Produces and consumes with default settings until its input ends; then prints the errors and the counts.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Stream {
  static final int A_SECOND = 200;

  public static void main(String[] arguments) throws Exception {
    var bootstrap = arguments[0];
    var topic = arguments[1];
    var stopping = new AtomicBoolean();
    var errors = new ConcurrentLinkedQueue<String>();
    var acknowledged = new AtomicInteger();
    var slowest = new AtomicLong();
    var consumed = ConcurrentHashMap.<String>newKeySet();

    var consumer = new Thread(() -> {
      var settings = new HashMap<String, Object>(
          Map.of("bootstrap.servers", bootstrap, "group.id", topic, "auto.offset.reset", "earliest"));
      try (var client = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
        client.subscribe(List.of(topic));
        var end = Long.MAX_VALUE;
        while (System.currentTimeMillis() < end && !(stopping.get() && consumed.size() == acknowledged.get())) {
          if (stopping.get() && end == Long.MAX_VALUE) end = System.currentTimeMillis() + 30_000;
          for (var record : client.poll(Duration.ofMillis(100))) consumed.add(record.value());
        }
      } catch (Exception error) {
        errors.add("consumer: " + error);
      }
    });
    consumer.start();

    var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
    try (var client = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      System.out.println("begun");
      for (int number = 0; System.in.available() == 0; number++) {
        var begun = System.currentTimeMillis();
        client.send(new ProducerRecord<>(topic, "value " + number), (metadata, error) -> {
          if (error != null) errors.add("producer: " + error);
          else acknowledged.incrementAndGet();
          slowest.accumulateAndGet(System.currentTimeMillis() - begun, Math::max);
        });
        Thread.sleep(1000 / A_SECOND);
      }
    }
    stopping.set(true);
    consumer.join();
    for (var error : errors) System.out.println("error " + error);
    System.out.println("acknowledged " + acknowledged + " consumed " + consumed.size() + " slowest " + slowest);
  }
}
