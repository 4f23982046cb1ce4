#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "plugins/mpi_preload/interpose.hpp"
#include "plugins/mpi_preload/observing.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/requests.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

Verdict raise(const std::string& failure) { return {.next = Verdict::Next::raise, .code = announce(failure)}; }

// Counts a call that is to be forwarded; calls of a known kind are counted in short.
Verdict count(const Reduce& call, CommState& state, const drop_in::HostReducer::Route& route) REQUIRES(state.mutex) {
  Verdict verdict{.chosen = route.turn.timed};
  const std::uint64_t bytes = bytes_of(call.count, call.type);
  observe_values(call, route.what);
  try {
    if (route.lasting || route.choice) {
      verdict.known = state.known.remember({call.function, call.type, call.op, call.count}, bytes, route);
    }
    if (verdict.known == nullptr) {
      state.reducer->count_passed(route, bytes, 0);
      verdict.counted = std::make_unique<drop_in::CallClass>(route.what).release();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a call that is not counted is still forwarded
  }
  return verdict;
}

// Compresses a call, or counts it for forwarding.
Verdict route_and_do(const Reduce& call, const choice::Call& described, const choice::CallDecision& decided,
                     CommState& state) REQUIRES(state.mutex) {
  if (compresses()) {
    state.call = std::string(choice::name_of(call.function)) + " of " + std::to_string(call.count) + " elements";
    state.settle(call, state.reducer->could_compress(described, decided));
    if (state.lost) {
      return {};
    }
  }
  const void* buffer = call.send == MPI_IN_PLACE ? call.receive : call.send;
  const std::string name = name_of_buffer(buffer);
  const drop_in::HostReducer::Route route = state.reducer->route(
      described, decided, name_of_op(call.op), {.name = name, .buffer = buffer, .others = state.passed_calls()});
  if (route.decision.compress && !state.reducer->dry_run()) {
    compress(call, state, route);
    return {.next = Verdict::Next::done};
  }
  Verdict verdict = count(call, state, route);
  if (route.turn.trial) {
    begin_trial(call, state, route);
    const Result result = result_of(call, state);
    verdict.trial = true;
    verdict.result = result.data;
    verdict.result_count = result.count;
    verdict.dtype = *route.what.dtype;
  }
  return verdict;
}

// Handles errors of blocking calls and of those that return a request.
template <typename Act>
Verdict guarded(CommState& state, const Act& act) {
  std::string failure;
  {
    const MutexLock lock(state.mutex);
    // After a failure MPI may learn the end of a rank only later.
    const bool suspicious = !state.failure.empty() || transport::is_revoked(state.comm);
    if (state.lost || (suspicious && state.drop_if_faulty())) {
      return {};
    }
    if (state.failure.empty()) {
      try {
        return act();
      } catch (...) {
        const Error error = current_error();
        // The library's own call reports the reason, as it would without us, and a job that is only observed loses
        // nothing.
        if (!compresses() || state.drop_if_faulty()) {
          return {};
        }
        state.reducer->abort(error);  // for errors outside the transport
        state.fail(error.what());
      }
    }
    failure = state.failure;
  }
  return raise(failure);
}

Verdict judge_now(const Reduce& call) noexcept {
  CommState* state = find_state(call.comm);
  // Handles small calls on more communicators than the cache holds, unless a call that returns a request waits for a
  // blocking one, in which the ranks can agree.
  if (state == nullptr || state->of_session || counted_as_small(*state, call.function, call.count, call.type)) {
    return {};
  }
  try {
    if (state->requests) {
      state->requests->drain();  // keeps the order of calls the same on all ranks
    }
    return guarded(*state, [&] {
      state->mutex.assert_held();
      const choice::Call described = describe(call, *state);
      return route_and_do(call, described, state->reducer->decide(described), *state);
    });
  } catch (...) {  // out of memory
    return compresses() ? Verdict{.next = Verdict::Next::raise, .code = MPI_ERR_OTHER} : Verdict{};
  }
}

}  // namespace

Verdict judge(const Reduce& call) noexcept {
  if (compresses()) {
    return judge_now(call);
  }
  const auto begin = std::chrono::steady_clock::now();
  Verdict verdict = judge_now(call);
  verdict.cost = seconds_since(begin);
  return verdict;
}

namespace {

Verdict count_request(const Reduce& call, CommState& state, choice::Reason reason) {
  drop_in::Router::Route route;
  route.what = {.function = call.function, .communicator_size = state.size, .reason = reason};
  route.lasting = choice::lasts(reason) || reason == choice::Reason::nonblocking;
  const std::uint64_t bytes = bytes_of(call.count, call.type);
  if (!compresses() && route.lasting &&
      state.known.remember({call.function, call.type, call.op, call.count}, bytes, route) != nullptr) {
    return {};
  }
  process().ledger.add(route.what, drop_in::passed_totals(call.function, 1, bytes, state.size));
  ++state.others;
  return {};
}

void tell_why_requests_pass(CommState& state) {
  if (state.rank != 0 || std::exchange(state.reason_logged, true)) {
    return;
  }
  if (transport::tolerates_faults()) {
    warn_once("MPI_Iallreduce and the like pass through: this MPI goes on when ranks end (--with-ft)");
  } else if (!process().agreement.requests) {
    warn_once(
        "MPI_Iallreduce and the like pass through: a rank initialised MPI below MPI_THREAD_MULTIPLE; "
        "GRADWIRE_THREADS=multiple raises that (gradwire run --threads=multiple)");
  } else if (!state.asked_for_requests) {
    warn_once(
        "MPI_Iallreduce and the like pass on a communicator until its first blocking reduction, of any size, in which "
        "its ranks agree; on MPI_COMM_WORLD they are compressed at once");
  } else if (state.requests) {
    warn_once(
        "MPI_Iallreduce and the like pass on communicators other than MPI_COMM_WORLD where the codec is auto, or needs "
        "the step (int4 and below with feedback)");
  }
}

// Used while compressing. All ranks decide alike before the earlier calls have been made: by the arguments, by their
// agreement, or, on MPI_COMM_WORLD, in the thread that makes the calls in order.
Verdict post_or_count(const Reduce& call, CommState& state, MPI_Request* request) {
  const choice::Call described = describe(call, state);
  const choice::CallDecision decided = state.reducer_in_call().decide(described);
  if (!decided.compress && decided.reason != choice::Reason::nonblocking) {
    return count_request(call, state, decided.reason);
  }
  if (decided.compress && state.reducer_in_call().aside()) {
    return count_request(call, state, choice::Reason::aside);
  }
  const bool in_thread = state.requests && (state.comm == MPI_COMM_WORLD || state.decides_at_once(described));
  if (!in_thread || request == nullptr) {
    state.wants_requests = true;
    tell_why_requests_pass(state);
    return count_request(call, state, choice::Reason::nonblocking);
  }
  const int code = state.requests->post(call, described, request);
  return code == MPI_SUCCESS ? Verdict{.next = Verdict::Next::done}
                             : Verdict{.next = Verdict::Next::raise, .code = code};
}

}  // namespace

Verdict judge_request(const Reduce& call, MPI_Request* request) noexcept {
  CommState* state = find_state(call.comm);
  if (state == nullptr || state->of_session || counted_as_small(*state, call.function, call.count, call.type)) {
    return {};
  }
  try {
    if (!compresses()) {
      if (state->lost) {
        return {};
      }
      const choice::Call described = describe(call, *state);
      const choice::CallDecision decided = state->reducer_in_call().decide(described);
      if (!decided.compress || !state->reducer_in_call().dry_run()) {
        return count_request(call, *state, decided.reason);
      }
      return guarded(*state, [&] {
        state->mutex.assert_held();
        return route_and_do(call, described, decided, *state);
      });
    }
    // This does not take the mutex, which the thread holds while it makes a call: a call with a request must not wait.
    return state->lost ? Verdict{} : post_or_count(call, *state, request);
  } catch (...) {  // out of memory
    return compresses() ? Verdict{.next = Verdict::Next::raise, .code = MPI_ERR_OTHER} : Verdict{};
  }
}

namespace {

// Counts a known call that was forwarded; under the mutex of its communicator.
void note_known(KnownCall& known, double seconds, double cost) noexcept {
  add_to<std::uint64_t>(known.timed, 1);
  add_to(known.seconds, seconds);
  if (compresses()) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  observe_seconds(known.what, seconds, known.calls - std::exchange(known.seen, known.calls));
  if (known.what.reason == choice::Reason::observing) {
    known.own_remaining =
        next_look(known.calls, cost + seconds_since(begin), known.seconds / static_cast<double>(known.timed));
  }
}

}  // namespace

void note_seconds(MPI_Comm comm, const Verdict& verdict, int code, double seconds) noexcept {
  const std::unique_ptr<drop_in::CallClass> owned(verdict.counted);
  try {
    if (owned != nullptr) {
      process().ledger.add(*owned, {.seconds = seconds});
      observe_seconds(*owned, seconds, 1);
    }
    if (code != MPI_SUCCESS) {
      // The job's error handler may have freed the communicator; the cache has no freed ones.
      if (CommState* known = verdict.trial ? cached_state(comm) : nullptr) {
        const MutexLock lock(known->mutex);
        if (!known->lost) {
          known->reducer->drop_trial();
        }
      }
      return;
    }
    if (verdict.known == nullptr && !verdict.chosen && !verdict.trial) {
      return;
    }
    CommState* state = find_state(comm);
    if (state == nullptr) {
      return;
    }
    const MutexLock lock(state->mutex);
    if (state->lost) {
      return;  // its state was dropped, and its known calls with it
    }
    if (verdict.known != nullptr) {
      note_known(*verdict.known, seconds, verdict.cost);
    }
    if (verdict.trial) {
      end_trial(*state, {verdict.result, verdict.result_count}, verdict.dtype, seconds);
    } else if (verdict.chosen) {
      state->reducer->measured(seconds);
    }
    tell_lines(*state);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the call has succeeded
  }
}

void count_persistent(choice::Function function, std::int64_t count, MPI_Datatype type, MPI_Comm comm) noexcept {
  if (CommState* state = find_state(comm)) {
    state->passed_of(function).add(bytes_of(count, type));
  }
}

}  // namespace gradwire::mpi_preload
