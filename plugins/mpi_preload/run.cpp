#include <memory>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/requests.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

Verdict raise(const std::string& failure) { return {.next = Verdict::Next::raise, .code = announce(failure)}; }

// Counts what is to be forwarded: in short where calls like it are not looked at any more.
Verdict count(const Reduce& call, CommState& state, const drop_in::Member::Route& route) {
  Verdict verdict{.chosen = route.turn.timed};
  const std::uint64_t bytes = bytes_of(call.count, call.type);
  try {
    if (route.lasting || route.choice) {
      verdict.known = state.known.remember({call.function, call.type, call.op, call.count}, bytes, route);
    }
    if (verdict.known == nullptr) {
      state.member->count_passed(route, bytes, 0);
      verdict.counted = std::make_unique<drop_in::CallClass>(route.what).release();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): what is not counted is still forwarded
  }
  return verdict;
}

// Compresses, or counts what is to be forwarded.
Verdict decide_and_do(const Reduce& call, CommState& state) {
  state.reach_agreement();
  const void* buffer = call.send == MPI_IN_PLACE ? call.receive : call.send;
  const std::string name = name_of_buffer(buffer);
  const drop_in::Member::Route route = state.member->route(
      describe(call, state), name_of_op(call.op), {.name = name, .buffer = buffer, .others = state.passed_calls()});
  if (route.decision.compress && !state.member->dry_run()) {
    compress(call, state, route);
    return {.next = Verdict::Next::done};
  }
  return count(call, state, route);
}

}  // namespace

Verdict judge(const Reduce& call) noexcept {
  CommState* state = find_state(call.comm);
  // Small calls on more communicators than the cache holds.
  if (state == nullptr || counted_as_small(*state, call.function, call.count, call.type)) {
    return {};
  }
  try {
    if (state->requests) {
      state->requests->drain();  // in the same order on all ranks
    }
    std::string failure;
    {
      const std::lock_guard lock(state->mutex);
      // After a failure MPI may learn only later that a rank has ended.
      const bool suspicious = !state->failure.empty() || transport::is_revoked(call.comm);
      if (state->lost || (suspicious && state->drop_if_faulty())) {
        return {};
      }
      if (state->failure.empty()) {
        try {
          return decide_and_do(call, *state);
        } catch (...) {
          if (state->drop_if_faulty()) {
            return {};  // the library's own call says why, as it would without us
          }
          state->fail(current_error().what());
        }
      }
      failure = state->failure;
    }
    return raise(failure);
  } catch (...) {  // out of memory
    return {.next = Verdict::Next::raise, .code = MPI_ERR_OTHER};
  }
}

namespace {

// Before the ranks have agreed the arguments alone say whether all of them come here. A small call is one of control,
// which a rank may make while others are still far from it: that must not wait.
bool may_be_compressed(const Reduce& call) {
  constexpr std::uint64_t kLeastBytes = 4096;
  const auto dtype = dtype_of(call.type);
  return call.count > 0 && dtype && reduction_of(call.op) && bytes_of(call.count, call.type) >= kLeastBytes;
}

Verdict count_request(const Reduce& call, CommState& state, drop_in::Reason reason) {
  process().ledger.add({.function = call.function, .communicator_size = state.size, .reason = reason},
                       drop_in::passed_totals(call.function, 1, bytes_of(call.count, call.type), state.size));
  ++state.others;
  return {};
}

void tell_why_requests_pass(CommState& state) {
  const bool by_level = state.size > 1 && !state.inter && !(state.agreed && state.agreement.requests) &&
                        !state.agreement.disabled && process().configuration.disabled.empty();
  if (state.rank == 0 && by_level && !std::exchange(state.told, true)) {
    warn_once(transport::tolerates_faults()
                  ? "MPI_Iallreduce and the like pass through: this MPI goes on when ranks end (--with-ft)"
                  : "MPI_Iallreduce and the like pass through: a rank initialised MPI below MPI_THREAD_MULTIPLE; "
                    "GRADWIRE_THREADS=multiple raises that (gradwire run --threads=multiple)");
  }
}

Verdict post(const Reduce& call, CommState& state, MPI_Request* request) {
  const int code = state.requests->post(call, request);
  return code == MPI_SUCCESS ? Verdict{.next = Verdict::Next::done}
                             : Verdict{.next = Verdict::Next::raise, .code = code};
}

// The ranks have agreed inside a blocking call, or there is one rank.
Verdict decide_and_post(const Reduce& call, CommState& state, MPI_Request* request) {
  const drop_in::Decision decision = drop_in::decide(describe(call, state), state.member->settings());
  if (!decision.compress) {
    if (decision.reason == drop_in::Reason::nonblocking) {
      tell_why_requests_pass(state);
    }
    return count_request(call, state, decision.reason);
  }
  if (!state.requests && state.takes_requests()) {
    state.requests = std::make_unique<Requests>(state);
  }
  if (!state.requests) {  // a dry run
    const std::lock_guard lock(state.mutex);
    return decide_and_do(call, state);
  }
  return post(call, state, request);
}

// The first call of the communicator that counts, and it returns a request.
Verdict begin_apart(const Reduce& call, CommState& state, MPI_Request* request) {
  std::string failure;
  {
    const std::lock_guard lock(state.mutex);
    if (state.failure.empty()) {
      try {
        state.begin_agreement();
        state.requests = std::make_unique<Requests>(state);
        state.apart = true;
        state.requests->post_agreement();
      } catch (...) {
        state.fail(current_error().what());
      }
    }
    failure = state.failure;
  }
  return failure.empty() ? post(call, state, request) : raise(failure);
}

}  // namespace

Verdict judge_request(const Reduce& call, MPI_Request* request) noexcept {
  CommState* state = find_state(call.comm);
  if (state == nullptr) {
    return {};
  }
  try {
    const bool by_thread = request != nullptr && may_be_compressed(call);
    if (state->apart && by_thread) {
      return post(call, *state, request);
    }
    if (counted_as_small(*state, call.function, call.count, call.type)) {
      return {};
    }
    if (!by_thread && (state->apart || !state->agreed)) {
      return count_request(call, *state, drop_in::Reason::nonblocking);
    }
    if (!state->agreed && !state->inter && state->size > 1) {
      if (state->threads) {
        return begin_apart(call, *state, request);
      }
      tell_why_requests_pass(*state);
      return count_request(call, *state, drop_in::Reason::nonblocking);
    }
    if (!state->agreed) {  // nobody to ask
      const std::lock_guard lock(state->mutex);
      state->reach_agreement();
    }
    return decide_and_post(call, *state, request);
  } catch (...) {  // out of memory
    return {.next = Verdict::Next::raise, .code = MPI_ERR_OTHER};
  }
}

void note_seconds(MPI_Comm comm, const Verdict& verdict, int code, double seconds) noexcept {
  const std::unique_ptr<drop_in::CallClass> owned(verdict.counted);
  try {
    if (owned != nullptr) {
      process().ledger.add(*owned, {.seconds = seconds});
    }
    if (code != MPI_SUCCESS || (verdict.known == nullptr && !verdict.chosen)) {
      return;
    }
    CommState* state = find_state(comm);
    if (state == nullptr) {
      return;
    }
    const std::lock_guard lock(state->mutex);
    if (state->lost) {
      return;  // and what is known of its calls with it
    }
    if (verdict.known != nullptr) {
      add_to<std::uint64_t>(verdict.known->timed, 1);
      add_to(verdict.known->seconds, seconds);
    }
    if (verdict.chosen) {
      state->member->measured(seconds);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the call has succeeded
  }
}

void count_persistent(drop_in::Function function, std::int64_t count, MPI_Datatype type, MPI_Comm comm) noexcept {
  if (CommState* state = find_state(comm)) {
    state->passed_of(function).add(bytes_of(count, type));
  }
}

}  // namespace gradwire::mpi_preload
