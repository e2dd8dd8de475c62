"""Where the profiles come from: the configuration's own sections, or a file of kube-scheduler.

A Policy or a KubeSchedulerConfiguration is turned into sections as they would stand in the configuration, and these are
bound like any other. Findings name the file, and the place in it.
"""

from extender.source.binding import bind_profiles, bind_sourced, read_profiles
from extender.source.draft import SourcedProfile

__all__ = ["SourcedProfile", "bind_profiles", "bind_sourced", "read_profiles"]
