// The calls of a thread since its outermost ncclGroupStart. NCCL runs nothing before the outermost end, so calls are
// counted only then, and not at all after ncclGroupSimulateEnd; communicators that the group makes exist only then.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "drop_in/device_calls.hpp"
#include "drop_in/ledger.hpp"
#include "plugins/nccl_preload/known_communicators.hpp"
#include "plugins/nccl_preload/timing.hpp"

namespace gradwire::nccl_preload {

/// One call, in the form in which the ledger takes it.
struct Entry {
  drop_in::CallClass call;
  drop_in::CallTotals totals;
};

/// A communicator that NCCL writes at the end of the group.
struct Newborn {
  ncclComm_t* where = nullptr;
  KnownCommunicator made = {};
};

/// An operation of ncclRedOpCreatePreMulSum that the job destroyed in the group, behind calls that use it.
struct DestroyedOp {
  ncclRedOp_t op;
  ncclComm_t comm;
};

struct CallGroup {
  int depth = 1;
  std::vector<Entry> calls = {};
  std::vector<TimedCall> timed = {};  // in an observing job; a group is timed if it is one call
  std::vector<Newborn> newborn = {};
  std::vector<drop_in::DeviceCall> recorded = {};  // calls that wait for the group's end, which may compress them
  std::vector<std::shared_ptr<drop_in::DeviceReducer>> agreeing = {};  // the group's end lets their ranks agree
  std::vector<DestroyedOp> destroyed = {};  // the group's end destroys these, behind the recorded calls
};

/// The open group of this thread, null outside one. A plain pointer: a thread's last NCCL calls may come after its
/// thread-local objects are gone.
extern constinit thread_local CallGroup* open_group;

}  // namespace gradwire::nccl_preload
