// franz-go: `commands BOOTSTRAP` reads a command in each line and prints its result, all as JSON: families/program.py
// lists the commands.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type command struct {
	Do         string
	ID         int
	Codec      *string
	Idempotent *bool
	LingerMs   *int `json:"linger_ms"`
	Records    []given
	Topic      string
	Partition  int32
	Ms         int
}

type given struct {
	Topic       string
	Partition   *int32
	Key         *string
	Value       *string
	Headers     [][2]string
	TimestampMs *int64 `json:"timestamp_ms"`
}

type failure struct {
	Code int16  `json:"code"`
	Text string `json:"text"`
}

// A producer has a client with the library's partitioner, and one for records whose partition is given.
type producer struct {
	keyed, placed *kgo.Client
}

var (
	producers = map[int]*producer{}
	readers   = map[int]*kgo.Client{}
	codecs    = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		var asked command
		must(json.Unmarshal(input.Bytes(), &asked))
		must(json.NewEncoder(os.Stdout).Encode(done(asked)))
	}
}

func done(asked command) any {
	switch asked.Do {
	case "producer":
		options := []kgo.Opt{}
		if asked.Codec != nil {
			options = append(options, kgo.ProducerBatchCompression(codecs[*asked.Codec]))
		}
		if asked.Idempotent != nil && !*asked.Idempotent {
			options = append(options, kgo.DisableIdempotentWrite())
		}
		if asked.LingerMs != nil {
			options = append(options, kgo.ProducerLinger(time.Duration(*asked.LingerMs)*time.Millisecond))
		}
		keyed, placed := connect(options...), connect(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		producers[asked.ID] = &producer{keyed, placed}
	case "send":
		return send(producers[asked.ID], asked.Records)
	case "reader":
		start := map[int32]kgo.Offset{asked.Partition: kgo.NewOffset().AtStart()}
		readers[asked.ID] = connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: start}))
	case "poll":
		return poll(readers[asked.ID], asked.Ms)
	case "close":
		if found, there := producers[asked.ID]; there {
			found.keyed.Close()
			found.placed.Close()
		} else {
			readers[asked.ID].Close()
		}
	}
	return nil
}

func send(with *producer, records []given) []any {
	answers := make([]any, len(records))
	var waiting sync.WaitGroup
	for number, each := range records {
		record := &kgo.Record{Topic: each.Topic, Key: bytes(each.Key), Value: bytes(each.Value)}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		if each.TimestampMs != nil {
			record.Timestamp = time.UnixMilli(*each.TimestampMs)
		}
		client := with.keyed
		if each.Partition != nil {
			client, record.Partition = with.placed, *each.Partition
		}
		waiting.Add(1)
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			defer waiting.Done()
			if err == nil {
				answers[number] = record.Offset
				return
			}
			code, found := int16(-1), (*kerr.Error)(nil)
			if errors.As(err, &found) {
				code = found.Code
			}
			answers[number] = failure{code, err.Error()}
		})
	}
	waiting.Wait()
	return answers
}

func poll(reader *kgo.Client, milliseconds int) [][]any {
	limited, cancel := context.WithTimeout(context.Background(), time.Duration(milliseconds)*time.Millisecond)
	defer cancel()
	found := [][]any{}
	reader.PollFetches(limited).EachRecord(func(record *kgo.Record) {
		headers := [][2]any{}
		for _, header := range record.Headers {
			headers = append(headers, [2]any{header.Key, text(header.Value)})
		}
		found = append(found, []any{
			record.Partition, record.Offset, text(record.Key), text(record.Value), headers, record.Timestamp.UnixMilli(),
		})
	})
	return found
}

func connect(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)}, options...)...)
	must(err)
	return client
}

// Text has a letter for each byte (Latin-1).
func text(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	letters := make([]rune, len(bytes))
	for at, each := range bytes {
		letters[at] = rune(each)
	}
	return string(letters)
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	found := []byte{}
	for _, each := range *text {
		found = append(found, byte(each))
	}
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
