"""Configs of topics and brokers: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import dropwhile
from typing import Any, TypeVar

from gnomon.broker.configs.broker_configs import BROKER_CONFIGS, BrokerConfigs, ConfigValue, check_broker_config
from gnomon.broker.configs.config_key import ConfigKey, ConfigSource, ConfigType, InvalidConfig
from gnomon.broker.configs.stored_configs import StoredConfigs
from gnomon.broker.configs.topic_configs import TOPIC_CONFIGS, check_kept, check_topic_configs
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.topics.cast import SHADOW_SOURCE, described_source
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R")

RESOURCES_PER_TURN = 16
"""Resources after which the handler yields to other tasks: each has some thirty keys, and takes 0.3 ms."""


class ConfigResource(IntEnum):
    """The resource types that have configs here."""

    TOPIC = 2
    BROKER = 4


_WITHOUT_CONFIGS = {8: "a broker's loggers", 16: "client metrics", 32: "groups"}
"""Kafka's other resource types, as errors name them."""


class AlterOperation(IntEnum):
    """The operations of IncrementalAlterConfigs on one key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigHandlers:
    """Answers the config requests of one broker."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        admin: TopicAdmin,
        configs: BrokerConfigs,
        stored: StoredConfigs,
        node_id: int,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._records = records
        self._admin = admin
        self._configs = configs
        self._stored = stored
        self._node_id = node_id
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
        }

    # --- describe -----------------------------------------------------------------------------------------------

    async def describe_configs(self, request: Request) -> DescribeConfigsResponse:
        """Every key asked for, with its source, type and synonyms; a resource that is named twice is answered once."""
        message: DescribeConfigsRequest = request.message
        results = []
        resources = {(item.resource_type, item.resource_name): item for item in message.resources}
        async for resource in paced(resources.values(), RESOURCES_PER_TURN, self._clock):
            try:
                configs = list(self._describe(resource, message))
                code, text = ErrorCode.NONE, None
            except KafkaError as error:
                configs, code, text = [], error.code, error.text
            results.append(
                DescribeConfigsResult(
                    error_code=code,
                    error_message=text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=configs,
                )
            )
        return DescribeConfigsResponse(results=results)

    def _describe(
        self, resource: DescribeConfigsResource, message: DescribeConfigsRequest
    ) -> Iterable[DescribeConfigsResourceResult]:
        asked = resource.configuration_keys
        table: Mapping[str, ConfigKey]
        if resource.resource_type == ConfigResource.TOPIC:
            topic = self._topic(resource.resource_name)
            table = TOPIC_CONFIGS
            configs = self._topics.configs_of(topic)
            values = {name: self._configs.topic_synonyms(name, configs) for name in table}
            for key, text, source in described_source(topic):
                if not asked or key.name in asked:
                    yield _described(key, [ConfigValue(key.name, text, source)], message)
        elif resource.resource_type == ConfigResource.BROKER:
            self._check_broker(resource.resource_name)
            table = BROKER_CONFIGS
            values = self._broker_values(resource.resource_name)
        else:
            raise _without_configs(resource.resource_type)
        for name, found in values.items():
            if not asked or name in asked:
                yield _described(table[name], found, message)

    def _broker_values(self, name: str) -> dict[str, list[ConfigValue]]:
        configs = self._configs
        if name == "":  # the defaults for all brokers, as far as they are set
            layer = configs.layer(ConfigSource.DYNAMIC_DEFAULT_BROKER)
            return {key: [ConfigValue(key, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)] for key, text in layer.items()}
        return {key: configs.synonyms(key) for key in BROKER_CONFIGS}

    def _topic(self, name: str) -> Topic:
        topic = self._topics.image.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    def _check_broker(self, name: str) -> None:
        if name not in ("", str(self._node_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Broker {name!r} is not known: this is broker {self._node_id}."
            )

    # --- alter --------------------------------------------------------------------------------------------------

    async def incremental_alter_configs(self, request: Request) -> IncrementalAlterConfigsResponse:
        """Sets, deletes, appends to or subtracts from single keys."""
        message: IncrementalAlterConfigsRequest = request.message
        return IncrementalAlterConfigsResponse(
            responses=await self._alter_each(
                IncrementalAlterConfigsResourceResponse, message, lambda item: item, replace=False
            )
        )

    async def alter_configs(self, request: Request) -> AlterConfigsResponse:
        """Replaces all keys that are set: a key that is not named returns to its default."""
        message: AlterConfigsRequest = request.message

        def change(item: AlterableConfig) -> IncrementalAlterableConfig:
            return IncrementalAlterableConfig(name=item.name, value=item.value)

        return AlterConfigsResponse(
            responses=await self._alter_each(AlterConfigsResourceResponse, message, change, replace=True)
        )

    async def _alter_each(
        self,
        answer: Callable[..., R],
        message: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        change: Callable[[Any], IncrementalAlterableConfig],
        *,
        replace: bool,
    ) -> list[R]:
        named = Counter((resource.resource_type, resource.resource_name) for resource in message.resources)
        answers = []
        resources: Sequence[AlterConfigsResource | IncrementalAlterConfigsResource] = message.resources
        async for resource in paced(resources, RESOURCES_PER_TURN, self._clock):
            twice = named[resource.resource_type, resource.resource_name] > 1
            changes = {item.name: change(item) for item in resource.configs}
            answers.append(await self._alter(answer, resource, twice, changes, message.validate_only, replace))
        return answers

    async def _alter(
        self,
        answer: Callable[..., R],
        resource: AlterConfigsResource | IncrementalAlterConfigsResource,
        twice: bool,
        changes: Mapping[str, IncrementalAlterableConfig],
        validate_only: bool,
        replace: bool,
    ) -> R:
        name = resource.resource_name
        code: ErrorCode = ErrorCode.NONE
        text: str | None = None
        try:
            if twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource '{name}' is named twice in one request.")
            if len(changes) != len(resource.configs):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A key is named twice in one request.")
            if resource.resource_type == ConfigResource.TOPIC:
                await self._alter_topic(name, changes, validate_only, replace)
            elif resource.resource_type == ConfigResource.BROKER:
                await self._alter_broker(name, changes, validate_only, replace)
            else:
                raise _without_configs(resource.resource_type)
        except KafkaError as error:
            code, text = error.code, error.text
        except InvalidConfig as error:
            code, text = ErrorCode.INVALID_CONFIG, KafkaError(ErrorCode.INVALID_CONFIG, str(error)).text
        return answer(error_code=code, error_message=text, resource_type=resource.resource_type, resource_name=name)

    async def _alter_topic(
        self, name: str, changes: Mapping[str, IncrementalAlterableConfig], validate_only: bool, replace: bool
    ) -> None:
        await self._records.find(name)  # another broker may just have created the topic
        shown = self._topic(name)

        def changed(topic: Topic) -> Topic:
            if topic.source is not None or SHADOW_SOURCE in changes:
                _check_shadow(topic, changes, replace)
                return topic
            before = {} if replace else topic.configs
            configs = _changed(before, changes, TOPIC_CONFIGS, "topic")
            kept = check_topic_configs(configs)
            check_kept(topic.configs, kept)
            return topic.with_configs(kept)

        if validate_only:
            changed(shown)
        else:
            await self._admin.change(name, changed)

    async def _alter_broker(
        self, name: str, changes: Mapping[str, IncrementalAlterableConfig], validate_only: bool, replace: bool
    ) -> None:
        self._check_broker(name)
        source = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER

        def changed(layer: Mapping[str, str]) -> dict[str, str]:
            with _refused_as_request():
                for key in changes:
                    if key not in BROKER_CONFIGS:
                        check_broker_config(key, "")
            configs = _changed({} if replace else layer, changes, BROKER_CONFIGS, "broker")
            with _refused_as_request():
                for key, text in configs.items():
                    check_broker_config(key, text)
                    if not BROKER_CONFIGS[key].alterable:
                        raise InvalidConfig(
                            f"Cannot update {key} while the broker runs: set it in the settings file and start it again"
                        )
            return configs

        if validate_only:
            changed(self._configs.layer(source))
        else:
            await self._stored.change(source, changed)


def _without_configs(kind: int) -> KafkaError:
    what = _WITHOUT_CONFIGS.get(kind, f"resources of type {kind}")
    return KafkaError(ErrorCode.INVALID_REQUEST, f"There are no configs of {what} here: topics and brokers have some.")


@contextmanager
def _refused_as_request() -> Iterator[None]:
    """Refuses an invalid config of a broker with INVALID_REQUEST, as Kafka does; for topics it is INVALID_CONFIG."""
    try:
        yield
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_shadow(topic: Topic, changes: Mapping[str, IncrementalAlterableConfig], replace: bool) -> None:
    """Raises InvalidConfig for a change that belongs on the source, or to the creation of a shadow.

    With `replace`, a request that does not name the source would remove it.
    """
    if topic.source is None:
        raise InvalidConfig(
            f"{SHADOW_SOURCE} is given when a topic is created: '{topic.name}' has records of its own; create another"
        )
    others = sorted(name for name in changes if name != SHADOW_SOURCE)
    if others:
        raise InvalidConfig(
            f"Topic '{topic.name}' is a shadow of '{topic.source.name}': set {', '.join(others)} on the source"
        )
    item = changes.get(SHADOW_SOURCE)
    if item is None and not replace:
        return
    if item is None or item.config_operation != AlterOperation.SET or item.value != topic.source.name:
        raise InvalidConfig(
            f"{SHADOW_SOURCE} cannot be changed nor removed: topic '{topic.name}' is a shadow of '{topic.source.name}' "
            "as long as it lives; delete it and create another"
        )


def _changed(
    before: Mapping[str, str],
    changes: Mapping[str, IncrementalAlterableConfig],
    table: Mapping[str, ConfigKey],
    kind: str,
) -> dict[str, str]:
    configs = dict(before)
    for name, item in changes.items():
        key = table.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown {kind} config name: {name}")
        operation = item.config_operation
        if operation == AlterOperation.DELETE:
            configs.pop(name, None)
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            if key.type is not ConfigType.LIST:
                raise InvalidConfig(f"Config value append is not allowed for config key: {name}")
            given = (item.value or "").split(",")
            have = [part for part in configs.get(name, key.default or "").split(",") if part and part not in given]
            configs[name] = ",".join(have + (given if operation == AlterOperation.APPEND else []))
        elif operation == AlterOperation.SET:
            if item.value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {kind} configs: {name}")
            configs[name] = item.value
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation} for {name}.")
    return configs


def _described(
    key: ConfigKey, values: list[ConfigValue], message: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    # As in Kafka, older names (log.retention.hours) are listed only after a value of the key's own name.
    named = list(dropwhile(lambda value: value.name not in (key.name, key.synonym), values))
    synonyms = [DescribeConfigsSynonym(name=value.name, value=value.given, source=value.source) for value in named]
    return DescribeConfigsResourceResult(
        name=key.name,
        value=values[0].text,
        read_only=not key.alterable,
        config_source=named[0].source if named else ConfigSource.DEFAULT,
        synonyms=synonyms if message.include_synonyms else [],
        config_type=key.type,
        documentation=key.documentation if message.include_documentation else None,
    )
