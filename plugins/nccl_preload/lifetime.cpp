// Groups, operations, and functions that make or end communicators: their calls are forwarded and recorded.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "kernels/numeric.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/reduce_calls.hpp"
#include "plugins/nccl_preload/state.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t))

namespace gradwire::nccl_preload {

constinit thread_local CallGroup* open_group = nullptr;

namespace {

bool went_well(ncclResult_t result) noexcept { return result == ncclSuccess || result == ncclInProgress; }

/// The config of an older NCCL is shorter. NCCL itself refuses a config that it did not initialise.
bool asks_for_nonblocking(const ncclConfig_t* config) noexcept {
  return config != nullptr && config->size >= offsetof(ncclConfig_t, blocking) + sizeof config->blocking &&
         config->blocking == 0;
}

/// The name that the job gave in the config; null if it gave none.
const char* name_in(const ncclConfig_t* config) noexcept {
  return config != nullptr && config->size >= offsetof(ncclConfig_t, commName) + sizeof config->commName
             ? config->commName
             : nullptr;
}

/// Called after NCCL made a communicator, or will make it at the end of the group.
void born(ncclResult_t result, ncclComm_t* where, bool blocking, const ncclConfig_t* config = nullptr) noexcept {
  if (InsideNccl::active() || !went_well(result) || where == nullptr) {
    return;
  }
  unseen([&] {
    blocking = blocking && result != ncclInProgress;
    const char* const given = name_in(config);
    std::string name = given != nullptr ? given : "";
    if (*where != nullptr) {
      state().communicators.add(*where, blocking, std::move(name));
    } else if (open_group != nullptr) {
      open_group->newborn.push_back({where, blocking, std::move(name)});  // NCCL writes to `where` at the group's end
    }
  });
}

template <class T>
T read_as(const void* from) noexcept {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// NCCL has read a factor of the host when it has made the operation; one of the device is read when sums run.
std::optional<Factor> factor_at(const void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence) noexcept {
  if (residence == ncclScalarDevice) {
    return Factor{.device = scalar};
  }
  switch (datatype) {
    case ncclFloat32: return Factor{.value = read_as<float>(scalar)};
    case ncclFloat64: return Factor{.value = read_as<double>(scalar)};
    case ncclFloat16: return Factor{.value = kernels::from_f16(read_as<std::uint16_t>(scalar))};
    case ncclBfloat16: return Factor{.value = kernels::from_bf16(read_as<std::uint16_t>(scalar))};
    default: return std::nullopt;
  }
}

/// Whether a communicator made from `parent` blocks. Without a config it is like its parent.
bool child_blocks(ncclComm_t parent, const ncclConfig_t* config) noexcept {
  bool blocking = !asks_for_nonblocking(config);
  unseen([&] {
    if (config == nullptr) {
      const auto known = state().communicators.find(parent);
      blocking = known && known->blocking;
    }
  });
  return blocking;
}

/// Runs `free_comm`, which frees the communicator, after removing the drop-in's state of it.
template <typename F>
ncclResult_t end(ncclComm_t comm, F&& free_comm) {
  if (InsideNccl::active()) {
    return free_comm();
  }
  std::optional<KnownCommunicator> old;
  unseen([&] {
    state().timer.collect();
    old = state().communicators.take(comm);
  });
  if (open_group != nullptr) {
    std::erase_if(open_group->destroyed, [=](const DestroyedOp& each) { return each.comm == comm; });
  }
  const bool has_reducer = old && old->state && old->state->reducer;
  if (has_reducer) {
    forget_recorded(*old->state);
    *old->state->ended = true;
  }
  const ncclResult_t result = free_comm();
  if (old && !went_well(result)) {
    if (has_reducer) {
      *old->state->ended = false;
    }
    unseen([&] { state().communicators.put_back(comm, *old); });
  } else if (has_reducer) {
    const CaptureTruce truce;  // the reducer frees its memory
    old.reset();
  }
  return result;
}

ncclResult_t closed(ncclResult_t result, ncclComm_t comm) noexcept {
  if (!InsideNccl::active() && went_well(result)) {
    const CaptureTruce truce;
    unseen([&] { state().communicators.close(comm); });
  }
  return result;
}

ncclResult_t group_started(ncclResult_t result) noexcept {
  if (!InsideNccl::active() && result == ncclSuccess) {
    if (open_group != nullptr) {
      ++open_group->depth;
    } else {
      open_group = new (std::nothrow) CallGroup;  // NOLINT(cppcoreguidelines-owning-memory): see the declaration
    }
  }
  return result;
}

/// The call that the outermost end runs, if it is the only one of the group: the times of several cannot be told apart.
std::optional<TimedCall> timed_by_end() noexcept {
  std::optional<TimedCall> timed;
  unseen([&] {
    if (!InsideNccl::active() && open_group != nullptr && open_group->depth == 1 && open_group->timed.size() == 1 &&
        open_group->calls.size() == 1 && open_group->recorded.empty()) {
      timed = open_group->timed.front();
    }
  });
  return timed;
}

/// Called before a simulated end. Gives NCCL the recorded calls, so that it simulates them too.
ncclResult_t complete_group() noexcept {
  const bool outermost = !InsideNccl::active() && open_group != nullptr && open_group->depth == 1;
  return outermost ? forward_recorded(*open_group) : ncclSuccess;
}

/// `ran` is false for a simulation. A group ends with its outermost end whatever NCCL's result.
ncclResult_t group_ended(ncclResult_t result, bool ran) noexcept {
  if (InsideNccl::active() || open_group == nullptr || --open_group->depth > 0) {
    return result;
  }
  CallGroup* group = open_group;
  open_group = nullptr;
  unseen([&] {
    if (ran) {
      for (const Entry& entry : group->calls) {
        state().ledger.add(entry.call, entry.totals);
      }
    }
    for (const Newborn& child : group->newborn) {
      if (went_well(result) && *child.where != nullptr) {
        state().communicators.add(*child.where, child.blocking && result == ncclSuccess, child.name);
      }
    }
  });
  if (ran && went_well(result)) {
    const ncclResult_t recorded = run_recorded(*group);
    result = recorded == ncclSuccess ? result : recorded;
  }
  for (const DestroyedOp& each : group->destroyed) {
    const ncclResult_t destroyed = GRADWIRE_NCCL_REAL(ncclRedOpDestroy)(each.op, each.comm);
    result = result == ncclSuccess ? destroyed : result;
  }
  // The group may hold the last reference to a reducer, which frees its memory then.
  std::optional<CaptureTruce> truce;
  if (!group->recorded.empty() || !group->agreeing.empty()) {
    truce.emplace();
  }
  delete group;  // NOLINT(cppcoreguidelines-owning-memory)
  return result;
}

}  // namespace
}  // namespace gradwire::nccl_preload

// Defines a function whose calls the drop-in records; `real` is NCCL's.
#define REMEMBERED(name, parameters, ...)                                              \
  GRADWIRE_NCCL_DECLARE(ncclResult_t, name, parameters)                                \
  extern "C" ncclResult_t name parameters {                                            \
    using namespace gradwire::nccl_preload; /* NOLINT(google-build-using-namespace) */ \
    const auto& real = GRADWIRE_NCCL_REAL(name);                                       \
    __VA_ARGS__                                                                        \
  }                                                                                    \
  GRADWIRE_NCCL_REPLACEMENT(name)

REMEMBERED(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank), {
  const ncclResult_t result = real(comm, ranks, id, rank);
  born(result, comm, true);
  return result;
})
REMEMBERED(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config), {
  const bool blocking = !asks_for_nonblocking(config);
  const ncclResult_t result = real(comm, ranks, id, rank, config);
  born(result, comm, blocking, config);
  return result;
})
REMEMBERED(ncclCommInitRankScalable,
           (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config), {
             const bool blocking = !asks_for_nonblocking(config);
             const ncclResult_t result = real(newcomm, nranks, myrank, nId, commIds, config);
             born(result, newcomm, blocking, config);
             return result;
           })
REMEMBERED(ncclCommInitAll, (ncclComm_t * comm, int ndev, const int* devlist), {
  const ncclResult_t result = real(comm, ndev, devlist);
  for (int i = 0; comm != nullptr && went_well(result) && i < ndev; ++i) {
    born(result, comm + i, true);
  }
  return result;
})
REMEMBERED(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config), {
  const bool blocking = child_blocks(comm, config);
  const ncclResult_t result = real(comm, color, key, newcomm, config);
  born(result, newcomm, blocking, config);
  return result;
})
REMEMBERED(ncclCommShrink,
           (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
            int shrinkFlags),
           {
             const bool blocking = child_blocks(comm, config);
             const ncclResult_t result = real(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
             born(result, newcomm, blocking, config);
             return result;
           })

REMEMBERED(ncclCommFinalize, (ncclComm_t comm), { return closed(real(comm), comm); })
REMEMBERED(ncclCommRevoke, (ncclComm_t comm, int flags), { return closed(real(comm, flags), comm); })
REMEMBERED(ncclCommDestroy, (ncclComm_t comm), { return end(comm, [&] { return real(comm); }); })
REMEMBERED(ncclCommAbort, (ncclComm_t comm), { return end(comm, [&] { return real(comm); }); })

REMEMBERED(ncclRedOpCreatePreMulSum,
           (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm),
           {
             const ncclResult_t result = real(op, scalar, datatype, residence, comm);
             if (result == ncclSuccess && op != nullptr) {
               const auto factor = factor_at(scalar, datatype, residence);
               unseen([&] { state().communicators.add_scaled_sum(comm, *op, factor); });
             }
             return result;
           })
REMEMBERED(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), {
  bool later = false;
  unseen([&] {
    state().communicators.remove_scaled_sum(comm, op);
    if (!InsideNccl::active() && open_group != nullptr && !open_group->recorded.empty()) {
      open_group->destroyed.push_back({op, comm});  // recorded calls may still be given to NCCL
      later = true;
    }
  });
  return later ? ncclSuccess : real(op, comm);
})

REMEMBERED(ncclGroupStart, (), { return group_started(real()); })
REMEMBERED(ncclGroupEnd, (), { return group_ended(make_timed(timed_by_end(), real), true); })
REMEMBERED(ncclGroupSimulateEnd, (ncclSimInfo_t * info), {
  const ncclResult_t completed = complete_group();
  const ncclResult_t result = group_ended(real(info), false);
  return completed == ncclSuccess ? result : completed;
})
