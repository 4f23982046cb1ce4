#include "plugins/nccl_preload/reduce_calls.hpp"

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "drop_in/absent_device.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/state.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommCount, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommUserRank, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGroupStart, ())
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGroupEnd, ())
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclAllReduce,
                      (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclReduceScatter,
                      (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))

namespace gradwire::nccl_preload {
namespace {

class Library final : public drop_in::DeviceLibrary {
 public:
  [[nodiscard]] int start_group() override { return GRADWIRE_NCCL_REAL(ncclGroupStart)(); }
  [[nodiscard]] int end_group() override { return GRADWIRE_NCCL_REAL(ncclGroupEnd)(); }
  [[nodiscard]] int failed() const noexcept override { return ncclSystemError; }
  void say(const std::string& text) override { std::fprintf(stderr, "gradwire: %s\n", text.c_str()); }
};

/// If the device refuses, the rank compresses nothing, and says so in the agreement.
std::unique_ptr<drop_in::DeviceLink> link_of(ncclComm_t comm, const CommunicatorState& known,
                                             const Reserved& reserved) {
  try {
    return make_link(comm, known.rank, known.size, reserved);
  } catch (...) {
    return drop_in::make_absent_link(known.rank, known.size, reserved.gather, current_error());
  }
}

/// The communicator's reducer, made by its first reduction. If it cannot be made, returns null and says so once; the
/// reduction must then fail, since other ranks may compress it.
std::shared_ptr<drop_in::DeviceReducer> reducer_of(ncclComm_t comm, const KnownCommunicator& communicator) {
  CommunicatorState known = *communicator.state;
  if (!known.reducer && !known.refused) {
    try {
      const Reserved reserved =
          communicator.reserved ? *communicator.reserved : reserve(comm, communicator.shares).value();
      known.ended = reserved.ended;
      known.child = reserved.child;
      known.reducer = std::make_shared<drop_in::DeviceReducer>(
          state().configuration, state().ledger, link_of(comm, known, reserved), state().process, communicator.name);
    } catch (...) {
      known.refused = true;
      Library().say(std::string(current_error().what()) +
                    "; reductions on this communicator fail, since other ranks may compress them");
    }
    state().communicators.set_state(comm, known);
  }
  return known.reducer;
}

// NCCL's own call with other buffers.
ncclResult_t call_library(const NcclCall& request, const void* send, void* receive) {
  const auto op = static_cast<ncclRedOp_t>(request.op);
  return request.function == choice::Function::nccl_reduce_scatter
             ? GRADWIRE_NCCL_REAL(ncclReduceScatter)(send, receive, request.count, request.datatype, op, request.comm,
                                                     request.stream)
             : GRADWIRE_NCCL_REAL(ncclAllReduce)(send, receive, request.count, request.datatype, op, request.comm,
                                                 request.stream);
}

drop_in::DeviceCall device_call(const NcclCall& request, const Described& described,
                                const std::shared_ptr<drop_in::DeviceReducer>& reducer, const Forward& forward,
                                bool captured) {
  return {.reducer = reducer,
          .call = described.call,
          .decided = reducer->decide(described.call),
          .op = described.what.op,
          .reduce = {.send = request.sendbuff,
                     .receive = request.recvbuff,
                     .count = request.count,
                     .dtype = described.call.dtype.value_or(DType::f32),
                     .reduction = described.call.reduction.value_or(Reduction::sum),
                     .factor = described.factor.value,
                     .device_factor = described.factor.device,
                     .stream = request.stream,
                     .scaled = described.scaled,
                     .captured = captured},
          .bytes = described.bytes,
          .forward = forward,
          .native = [request](const void* send, void* receive) { return call_library(request, send, receive); }};
}

// Makes the first reduction on a communicator. NCCL's own call goes first and the agreement follows, as at the end of a
// group: other ranks may make this call in a group, where nothing runs before the end and calls cannot depend on this
// rank's configuration.
ncclResult_t pass_and_agree(const std::shared_ptr<drop_in::DeviceReducer>& reducer, const Forward& forward) {
  if (const ncclResult_t result = forward(); result != ncclSuccess) {
    return result;
  }
  try {
    Library library;
    drop_in::reach_agreement({&reducer, 1}, library);
    return reducer->failure().empty() ? ncclSuccess : ncclSystemError;
  } catch (...) {  // out of memory; NCCL has the call already
    return ncclSystemError;
  }
}

// Whether a captured call may be compressed: ranks cannot agree during a capture, so they must have before.
bool may_be_captured(const Described& described) {
  if (!described.comm || !described.comm->state || !described.comm->state->reducer) {
    return false;
  }
  const drop_in::DeviceReducer& reducer = *described.comm->state->reducer;
  return reducer.agreed() && !reducer.dry_run() && reducer.decide(described.call).compress;
}

// Returns no value if the call is to be forwarded; `timed` is set if that call is to be timed.
std::optional<ncclResult_t> compress_or_record(const NcclCall& request, const Forward& forward,
                                               std::optional<TimedCall>& timed) {
  Described described = describe(request);
  const bool apart = state().latest.exchange(request.comm) != request.comm;
  choice::Call& call = described.call;
  const bool captured = is_captured(request.stream);
  call.captured = captured && !may_be_captured(described);
  const bool takes_part = call.valid && call.known && call.blocking && !call.captured && call.world_size > 1;
  if (!takes_part) {
    count(described, choice::decide(call, state().settings).reason);
    return std::nullopt;
  }
  const CaptureTruce truce;
  const auto reducer = reducer_of(request.comm, *described.comm);
  if (!reducer || !reducer->failure().empty()) {
    return ncclSystemError;
  }
  if (!reducer->agreed()) {
    reducer->note_other_call();
    call.agreed = false;
    count(described, choice::decide(call, {.floor_bytes = 0}).reason);
    if (open_group != nullptr) {
      open_group->agreeing.push_back(reducer);
      return std::nullopt;
    }
    return pass_and_agree(reducer, forward);
  }
  Library library;
  drop_in::DeviceCall made = device_call(request, described, reducer, forward, captured);
  made.reduce.apart = apart;
  if (reducer->dry_run() || !made.decided.compress) {
    const drop_in::Router::Route route = reducer->route(call, made.decided, made.op, made.reduce);
    count(route.what, reducer->passed_totals(route, made.bytes));
    if (route.what.reason == choice::Reason::observing || reducer->dry_run()) {
      timed = to_be_timed(route.what, made.bytes, request.stream);
    }
    return std::nullopt;
  }
  if (open_group != nullptr) {
    open_group->recorded.push_back(std::move(made));
    return ncclSuccess;
  }
  return static_cast<ncclResult_t>(drop_in::issue({&made, 1}, library));
}

}  // namespace

std::optional<Reserved> reserve(ncclComm_t comm, bool shares) {
  RankInCommunicator place;
  if (!has_device_path() || GRADWIRE_NCCL_REAL(ncclCommCount)(comm, &place.size) != ncclSuccess ||
      GRADWIRE_NCCL_REAL(ncclCommUserRank)(comm, &place.rank) != ncclSuccess || place.size < 2) {
    return std::nullopt;
  }
  Reserved reserved{.ended = std::make_shared<std::atomic<bool>>(false),
                    .child = std::make_shared<ChildCommunicator>(comm, place.rank, place.size, shares)};
  reserved.gather = make_gather(comm, place.rank, place.size, reserved.ended, reserved.child);
  return reserved;
}

bool may_compress() noexcept { return has_device_path() && !InsideNccl::active(); }

ncclResult_t reduce(const NcclCall& request, const Forward& forward) noexcept {
  std::optional<ncclResult_t> done;
  std::optional<TimedCall> timed;
  unseen([&] { done = compress_or_record(request, forward, timed); });
  return done ? *done : make_timed(timed, forward);
}

ncclResult_t run_recorded(CallGroup& group) noexcept {
  ncclResult_t result = ncclSuccess;
  if (group.agreeing.empty() && group.recorded.empty()) {
    return result;
  }
  try {
    const CaptureTruce truce;
    Library library;
    drop_in::reach_agreement(group.agreeing, library);
    result = static_cast<ncclResult_t>(drop_in::issue(group.recorded, library));
    for (const auto& reducer : group.agreeing) {
      result = reducer->failure().empty() || result != ncclSuccess ? result : ncclSystemError;
    }
  } catch (...) {  // out of memory; it is unknown which calls have run
    result = ncclSystemError;
  }
  return result;
}

ncclResult_t forward_recorded(CallGroup& group) noexcept {
  ncclResult_t result = ncclSuccess;
  for (const drop_in::DeviceCall& call : std::exchange(group.recorded, {})) {
    const auto code = static_cast<ncclResult_t>(call.forward());
    result = result != ncclSuccess ? result : code;
  }
  return result;
}

void forget_recorded(const CommunicatorState& ended) noexcept {
  if (open_group != nullptr && ended.reducer) {
    std::erase_if(open_group->recorded, [&](const drop_in::DeviceCall& call) { return call.reducer == ended.reducer; });
    std::erase(open_group->agreeing, ended.reducer);
  }
}

}  // namespace gradwire::nccl_preload
