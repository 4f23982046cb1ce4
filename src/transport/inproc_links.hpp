// Links of make_inproc_processes() that break and heal, for tests.
#pragma once

#include "gradwire/processes.hpp"

namespace gradwire::transport {

/// Whether each of two processes still hears of the other's end while the link between them is broken. `reached`: a
/// witness tells it in another way; `out_of_reach`: each is on a host that the other cannot reach.
enum class Witness : bool { reached, out_of_reach };

/// Breaks a link: both processes hear that the other is lost, and their messages wait; processes that trust resets hear
/// that it has ended. Any thread may call this. Error(invalid_argument) where `one` is not of make_inproc_processes(),
/// or `other` is not known to it.
void break_link(const Processes& one, Processes::Id other, Witness witness = Witness::reached);
/// Heals a link: both processes hear that the other is back, then the messages that waited. A process that ended out of
/// reach is never heard again.
void heal_link(const Processes& one, Processes::Id other);

}  // namespace gradwire::transport
