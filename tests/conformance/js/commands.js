// kafkajs: `node commands.js BOOTSTRAP` reads a command in each line and prints its result, all as JSON:
// families/program.py lists the commands.

const readline = require('node:readline')
const { Kafka, CompressionTypes, Partitioners, logLevel } = require('kafkajs')

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING })
const opened = new Map()
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

const bytes = (text) => (text === null ? null : Buffer.from(text, 'latin1'))
const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString('latin1'))

// The default partitioner, which notes the partition of each message: kafkajs returns only the first offset of each batch.
const noting = (places) => () => {
  const partitioner = Partitioners.DefaultPartitioner()
  return (message) => {
    const place = partitioner(message)
    places.push(place)
    return place
  }
}

async function send({ producer, compression, places }, records) {
  places.splice(0)
  const messages = records.map((each) => ({
    key: bytes(each.key),
    value: bytes(each.value),
    headers: Object.fromEntries(each.headers.map(([name, value]) => [name, bytes(value)])),
    ...(each.partition === null ? {} : { partition: each.partition }),
    ...(each.timestamp_ms === null ? {} : { timestamp: `${each.timestamp_ms}` }),
  }))
  try {
    const answers = await producer.send({ topic: records[0].topic, messages, compression })
    const next = new Map(answers.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]))
    return places.slice(-records.length).map((place) => {
      const offset = next.get(place)
      next.set(place, offset + 1)
      return offset
    })
  } catch (error) {
    const code = error.code === undefined ? -1 : error.code
    return records.map(() => ({ code, text: `${error}` }))
  }
}

async function reader({ id, topic, partition }) {
  const found = []
  const groupId = `${topic}-${partition}-${id}`
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const eachMessage = async (each) => {
    if (each.partition !== partition) return
    const { offset, key, value, headers, timestamp } = each.message
    const pairs = Object.entries(headers).map(([name, value]) => [name, text(value)])
    found.push([partition, Number(offset), text(key), text(value), pairs, Number(timestamp)])
  }
  await consumer.run({ eachMessage })
  return { found, close: () => consumer.disconnect() }
}

async function poll({ found }, milliseconds) {
  for (const end = Date.now() + milliseconds; !found.length && Date.now() < end; )
    await new Promise((resolve) => setTimeout(resolve, 10))
  return found.splice(0)
}

async function done(command) {
  const { id } = command
  if (command.do === 'send') return send(opened.get(id), command.records)
  if (command.do === 'poll') return poll(opened.get(id), command.ms)
  if (command.do === 'reader') opened.set(id, await reader(command))
  if (command.do === 'close') {
    await opened.get(id).close()
    opened.delete(id)
  }
  if (command.do === 'producer') {
    const idempotent = command.idempotent === null ? {} : { idempotent: command.idempotent }
    const places = []
    const producer = kafka.producer({ ...idempotent, createPartitioner: noting(places) })
    await producer.connect()
    const compression = codecs[command.codec || 'none']
    opened.set(id, { producer, compression, places, close: () => producer.disconnect() })
  }
  return null
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin }))
    console.log(JSON.stringify(await done(JSON.parse(line))))
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
