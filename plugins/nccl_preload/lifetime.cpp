// Groups, operations, and functions that make or end communicators: their calls are forwarded and recorded.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "gradwire/error.hpp"
#include "kernels/numeric.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/reduce_calls.hpp"
#include "plugins/nccl_preload/state.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommAbort, (ncclComm_t))
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

/// Returns the name that the job gave in the config; null if it gave none.
const char* name_in(const ncclConfig_t* config) noexcept {
  return config != nullptr && config->size >= offsetof(ncclConfig_t, commName) + sizeof config->commName
             ? config->commName
             : nullptr;
}

/// Returns whether children of the communicator will share its resources.
bool asks_to_share(const ncclConfig_t* config) noexcept {
  return config != nullptr && config->size >= offsetof(ncclConfig_t, splitShare) + sizeof config->splitShare &&
         config->splitShare == 1;
}

KnownCommunicator described_by(const ncclConfig_t* config) {
  const char* const name = name_in(config);
  return {
      .blocking = !asks_for_nonblocking(config), .name = name != nullptr ? name : "", .shares = asks_to_share(config)};
}

/// Describes a communicator made from `parent`. Without a config it is like its parent, but for the name.
KnownCommunicator child_described_by(const ncclConfig_t* config, ncclComm_t parent) {
  KnownCommunicator child = described_by(config);
  if (config == nullptr) {
    const auto known = state().communicators.find(parent);
    child.blocking = known && known->blocking;
    child.shares = !known || known->shares;
  }
  return child;
}

/// Notes a communicator that NCCL has made. If its rank cannot even answer the others in their agreement, making the
/// communicator fails as it would for want of NCCL's own memory: nobody waits for this rank in a call yet.
ncclResult_t adopt(ncclComm_t* where, KnownCommunicator made, ncclResult_t result) {
  if (made.blocking) {
    const CaptureTruce truce;
    try {
      made.reserved = reserve(*where, made.shares);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) {
        std::fprintf(stderr, "gradwire: a communicator is not made: %s\n", error.what());
        GRADWIRE_NCCL_REAL(ncclCommAbort)(std::exchange(*where, nullptr));
        return ncclUnhandledCudaError;
      }
    }
  }
  state().communicators.add(*where, std::move(made));
  return result;
}

/// Called after NCCL made a communicator, or will make it at the end of the group. `describe` reads the job's config.
/// Returns the job's result.
template <typename F>
[[nodiscard]] ncclResult_t born(ncclResult_t result, ncclComm_t* where, F&& describe) noexcept {
  if (InsideNccl::active() || !went_well(result) || where == nullptr) {
    return result;
  }
  unseen([&] {
    KnownCommunicator made = describe();
    made.blocking = made.blocking && result != ncclInProgress;
    if (*where != nullptr) {
      result = adopt(where, std::move(made), result);
    } else if (open_group != nullptr) {
      open_group->newborn.push_back({where, std::move(made)});  // NCCL writes to `where` at the group's end
    }
  });
  return result;
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

/// Says how the job ends a communicator.
enum class Ending : std::uint8_t {
  orderly,  // its work has ended, or NCCL waits for it
  abort,    // its work is to end at once
};

/// Runs `end_parent`, which ends the job's communicator, and ends our work on its child. NCCL's abort of one
/// communicator may wait until the device has ended all work before, also that of the other one. So the two run at the
/// same time: in the job's group, where it has one, since NCCL aborts nothing before its end.
template <typename F>
ncclResult_t end_with_child(const CommunicatorState& ended, F&& end_parent) {
  ended.reducer->abort();
  if (open_group != nullptr) {
    ended.child->abort();
    return end_parent();
  }
  std::optional<std::jthread> aborting;
  try {
    aborting.emplace([&] {
      const CaptureTruce truce;  // another thread may capture a graph
      ended.child->abort();
    });
  } catch (const std::system_error&) {  // there is no thread to be had
    ended.child->abort();
  }
  return end_parent();
}

/// Returns whether our work on a communicator has to be aborted as it ends: that of a reducer which has failed may
/// never end. Says so if a rank was missing in the last calls, whose results the job may not have looked at.
bool aborts_child(Ending ending, const CommunicatorState& ended) noexcept {
  if (ending == Ending::abort || !ended.reducer->failure().empty()) {
    return true;
  }
  const std::string missing = ended.reducer->missing();
  if (!missing.empty()) {
    std::fprintf(stderr, "gradwire: %s\n", missing.c_str());
  }
  return !missing.empty();
}

/// Runs `free_comm`, which frees the communicator, after removing the drop-in's state of it.
template <typename F>
ncclResult_t end(ncclComm_t comm, Ending ending, F&& free_comm) {
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
  const ncclResult_t result =
      has_reducer && aborts_child(ending, *old->state) ? end_with_child(*old->state, free_comm) : free_comm();
  if (old && !went_well(result)) {
    if (has_reducer) {
      *old->state->ended = false;
    }
    unseen([&] { state().communicators.put_back(comm, *old); });
  } else {
    const CaptureTruce truce;  // the reducer, or what was reserved for it, frees its memory
    old.reset();
  }
  return result;
}

/// Aborts a communicator that NCCL made together with one that was refused: the job gets an error for all of them.
void abandon(ncclComm_t* where) noexcept {
  if (ncclComm_t made = std::exchange(*where, nullptr); made != nullptr) {
    end(made, Ending::abort, [=] { return GRADWIRE_NCCL_REAL(ncclCommAbort)(made); });
  }
}

/// Runs `close_comm`, after which there are no more collectives on the communicator.
template <typename F>
ncclResult_t close(ncclComm_t comm, Ending ending, F&& close_comm) noexcept {
  std::optional<KnownCommunicator> old;
  if (!InsideNccl::active()) {
    unseen([&] { old = state().communicators.find(comm); });
  }
  const bool aborts = old && old->state && old->state->reducer && aborts_child(ending, *old->state);
  const ncclResult_t result = aborts ? end_with_child(*old->state, close_comm) : close_comm();
  if (!InsideNccl::active() && went_well(result)) {
    const CaptureTruce truce;
    old.reset();
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

/// Returns the call that the outermost end runs, if it is the only one of the group: the times of several cannot be
/// told apart.
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
  const ncclResult_t ended = result;
  unseen([&] {
    if (ran) {
      for (const Entry& entry : group->calls) {
        state().ledger.add(entry.call, entry.totals);
      }
    }
    for (Newborn& child : group->newborn) {
      if (went_well(result) && *child.where != nullptr) {
        child.made.blocking = child.made.blocking && result == ncclSuccess;
        result = adopt(child.where, std::move(child.made), result);
      }
    }
  });
  if (result != ended) {
    for (const Newborn& child : group->newborn) {
      abandon(child.where);
    }
  }
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
  return born(result, comm, [] { return described_by(nullptr); });
})
REMEMBERED(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config), {
  const ncclResult_t result = real(comm, ranks, id, rank, config);
  return born(result, comm, [&] { return described_by(config); });
})
REMEMBERED(ncclCommInitRankScalable,
           (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config), {
             const ncclResult_t result = real(newcomm, nranks, myrank, nId, commIds, config);
             return born(result, newcomm, [&] { return described_by(config); });
           })
REMEMBERED(ncclCommInitAll, (ncclComm_t * comm, int ndev, const int* devlist), {
  const ncclResult_t made = real(comm, ndev, devlist);
  ncclResult_t result = made;
  for (int i = 0; comm != nullptr && went_well(result) && i < ndev; ++i) {
    result = born(result, comm + i, [] { return described_by(nullptr); });
  }
  for (int i = 0; result != made && i < ndev; ++i) {
    abandon(comm + i);
  }
  return result;
})
REMEMBERED(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config), {
  const ncclResult_t result = real(comm, color, key, newcomm, config);
  return born(result, newcomm, [&] { return child_described_by(config, comm); });
})
REMEMBERED(ncclCommShrink,
           (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
            int shrinkFlags),
           {
             const auto shrink = [&] {
               return real(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
             };
             const bool aborts = (shrinkFlags & NCCL_SHRINK_ABORT) != 0;
             const ncclResult_t result = aborts ? close(comm, Ending::abort, shrink) : shrink();
             return born(result, newcomm, [&] { return child_described_by(config, comm); });
           })

// A kernel of ours that has waited in vain for a rank is an error of the communicator, which a job's watchdog looks
// for.
REMEMBERED(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), {
  const ncclResult_t result = real(comm, error);
  if (!InsideNccl::active() && result == ncclSuccess && error != nullptr && *error == ncclSuccess) {
    unseen([&] {
      const auto known = state().communicators.find(comm);
      if (known && known->state && known->state->reducer && !known->state->reducer->missing().empty()) {
        *error = ncclRemoteError;
      }
    });
  }
  return result;
})

REMEMBERED(ncclCommFinalize, (ncclComm_t comm), { return close(comm, Ending::orderly, [&] { return real(comm); }); })
REMEMBERED(ncclCommRevoke, (ncclComm_t comm, int flags),
           { return close(comm, Ending::abort, [&] { return real(comm, flags); }); })
REMEMBERED(ncclCommDestroy, (ncclComm_t comm), { return end(comm, Ending::orderly, [&] { return real(comm); }); })
REMEMBERED(ncclCommAbort, (ncclComm_t comm), { return end(comm, Ending::abort, [&] { return real(comm); }); })

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
