"""A command of one's own: `custom-scheduler` with a plugin that profiles name like those that come with it."""

import scheduler

from quiet_racks import QuietRacks


class QuietRacksAtHome(QuietRacks):
    name = "QuietRacksAtHome"
    api_version = 1


def run():
    scheduler.main(plugins={"QuietRacksAtHome": QuietRacksAtHome})
