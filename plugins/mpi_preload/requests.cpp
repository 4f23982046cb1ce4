#include "plugins/mpi_preload/requests.hpp"

#ifdef OPEN_MPI
#include <dlfcn.h>
#endif

#include <chrono>
#include <memory>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/mutex.hpp"
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "transport/backoff.hpp"

namespace gradwire::mpi_preload {

// Lives until the job has freed the request, which happens after its completion.
struct Requests::Posted {
  Reduce call;
  choice::Call described;
  std::vector<std::uint64_t> counts;  // call.counts points here
  std::string name;
  std::uint64_t others = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
};

namespace {

// Ends the job where MPI's own calls would do so at once. A handler of the job runs where the job waits, if the wait
// calls it.
void end_if_fatal(MPI_Comm comm, int code) noexcept {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) {
    return;
  }
  const bool fatal = handler == MPI_ERRORS_ARE_FATAL;
  PMPI_Errhandler_free(&handler);
  if (fatal) {
    PMPI_Comm_call_errhandler(comm, code);
  }
}

// A job that waits polls, and its rank may have one core. Without yields the thread that makes the calls gets that core
// only when the kernel's time slice ends: milliseconds a call. Open MPI reads its option at its start, before it is
// known that there will be requests.
void let_waits_yield() noexcept {
#ifdef OPEN_MPI
  using Set = bool(bool);
  if (auto* const set = reinterpret_cast<Set*>(dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"))) {
    set(true);
  }
#endif
}

}  // namespace

int Requests::post(const Reduce& call, const choice::Call& described, MPI_Request* request) {
  auto posted = std::make_unique<Posted>();
  posted->described = described;
  posted->counts.assign(call.counts.begin(), call.counts.end());
  posted->call = call;
  posted->call.counts = posted->counts;
  posted->name = name_of_buffer(call.send == MPI_IN_PLACE ? call.receive : call.send);
  posted->others = state_.passed_calls();
  const int code = PMPI_Grequest_start(&query, &release, &cancel, posted.get(), &posted->request);
  if (code != MPI_SUCCESS) {
    return code;
  }
  *request = posted->request;
  if (!any_.exchange(true, std::memory_order_relaxed)) {
    let_waits_yield();
  }
  queue_->post([this, mine = posted.release()] {
    make(*mine);
    PMPI_Grequest_complete(mine->request);  // `mine` may be freed from here on
  });
  return MPI_SUCCESS;
}

int Requests::query(void* posted, MPI_Status* status) noexcept {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Posted*>(posted)->code;
}

int Requests::release(void* posted) noexcept {
  delete static_cast<Posted*>(posted);
  return MPI_SUCCESS;
}

int Requests::cancel(void*, int) noexcept { return MPI_SUCCESS; }  // collective calls cannot be cancelled

void Requests::make(Posted& posted) noexcept {
  try {
    std::string failure;
    {
      const MutexLock lock(state_.mutex);
      if (state_.failure.empty()) {
        try {
          return route_and_make(posted);
        } catch (...) {
          const Error error = current_error();
          state_.reducer->abort(error);  // for errors outside the transport
          state_.fail(error.what());
        }
      }
      failure = state_.failure;
    }
    posted.code = announce(failure);
  } catch (...) {  // out of memory
    posted.code = MPI_ERR_OTHER;
  }
  end_if_fatal(state_.comm, posted.code);
}

void Requests::route_and_make(Posted& posted) {
  const Reduce& call = posted.call;
  const void* buffer = call.send == MPI_IN_PLACE ? call.receive : call.send;
  const drop_in::HostReducer::Route route = state_.reducer->route(
      posted.described, name_of_op(call.op), {.name = posted.name, .buffer = buffer, .others = posted.others});
  if (route.decision.compress && !state_.reducer->dry_run()) {
    state_.call = std::string(choice::name_of(call.function)) + " of " + std::to_string(call.count) + " elements";
    return compress(call, state_, route);
  }
  if (route.turn.trial) {
    begin_trial(call, state_, route);
  }
  const auto begin = std::chrono::steady_clock::now();
  posted.code = forward(call);
  const double seconds = seconds_since(begin);
  state_.reducer->count_passed(route, bytes_of(call.count, call.type), seconds);
  if (route.turn.trial) {
    if (posted.code == MPI_SUCCESS) {
      end_trial(state_, result_of(call, state_), *route.what.dtype, seconds);
    } else {
      state_.reducer->drop_trial();
    }
    tell_lines(state_);
  } else if (route.turn.timed) {
    state_.reducer->measured(seconds);
  }
}

// Makes the library's own call that returns a request, on our own communicator of all ranks. A blocking call would
// poll, and take the core from the job's computing as long as another rank is late.
int Requests::forward(const Reduce& call) const {
  if (state_.comm != MPI_COMM_WORLD) {  // the private communicator has other ranks
    throw Error(ErrorCode::internal, "a call that returns a request was to pass on a part of the ranks");
  }
#if MPI_VERSION >= 4
  using Count = MPI_Count;
  const auto all_reduce = &PMPI_Iallreduce_c;
  const auto reduce_scatter = &PMPI_Ireduce_scatter_c;
#else
  using Count = int;
  const auto all_reduce = &PMPI_Iallreduce;
  const auto reduce_scatter = &PMPI_Ireduce_scatter;
#endif
  const std::vector<Count> counts(call.counts.begin(), call.counts.end());  // MPI reads them until the call ends
  MPI_Request request = MPI_REQUEST_NULL;
  int code = counts.empty() ? all_reduce(call.send, call.receive, static_cast<Count>(call.count), call.type, call.op,
                                         process().world->comm(), &request)
                            : reduce_scatter(call.send, call.receive, counts.data(), call.type, call.op,
                                             process().world->comm(), &request);
  transport::Backoff backoff;
  for (int done = 0; code == MPI_SUCCESS && done == 0;) {
    code = PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && done == 0) {
      backoff.pause(transport::Backoff::Clock::time_point::max());
    }
  }
  return code;
}

}  // namespace gradwire::mpi_preload
