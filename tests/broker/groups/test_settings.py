from __future__ import annotations

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.config_key import ConfigSource
from gnomon.broker.groups.settings import CurrentGroupSettings


def test_an_altered_setting_holds_for_the_next_request() -> None:
    configs = BrokerConfigs({"group.max.size": "7"})
    settings = CurrentGroupSettings(configs)
    assert settings().members_max == 7
    assert settings() is settings()
    configs.set_layer(ConfigSource.DYNAMIC_BROKER, {"group.max.size": "8"})
    assert settings().members_max == 8
