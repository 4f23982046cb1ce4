// Links of make_inproc_processes() that break and heal, for tests.
#pragma once

#include "gradwire/processes.hpp"

namespace gradwire::transport {

/// Whether each of two processes still hears of the other's end while the link between them is broken: as where a
/// witness tells it by another way, or where the host of each is out of the other's reach.
enum class Witness : bool { reached, out_of_reach };

/// Both hear that the other is lost, and what they send waits; those that trust resets hear that it has ended. Any
/// thread. Error(invalid_argument) where `one` is not of make_inproc_processes(), or `other` is not known to it.
void break_link(const Processes& one, Processes::Id other, Witness witness = Witness::reached);
/// Both hear that the other is back, then what waited. Of one that ended out of reach nothing more is ever heard.
void heal_link(const Processes& one, Processes::Id other);

}  // namespace gradwire::transport
