// Sets the page pool of host memory as [memory] and [security] of a policy say.
#pragma once

#include "gradwire/policy.hpp"

namespace gradwire::policy {

/// `ranks` is the number of the job's ranks on this host, which share the memory that the system leaves. The last call
/// of a process counts.
void configure_host_memory(const Policy& policy, int ranks);

}  // namespace gradwire::policy
