#include "plugins/torch_c10d/core.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/environment.hpp"
#include "base/units.hpp"
#include "drop_in/observed_calls.hpp"
#include "plugins/torch_c10d/over_mpi.hpp"

namespace gradwire::torch_c10d {
namespace {

void say(const std::string& line) noexcept { std::fputs(("gradwire: " + line + "\n").c_str(), stderr); }

// What the report at the end says besides the numbers.
struct Reporting {
  std::mutex mutex;
  std::optional<drop_in::ReportHead> head;  // on the rank 0 of the first group
  std::optional<std::string> file;
  bool quiet = false;
};

Reporting& reporting() {
  static auto* const instance = new Reporting;  // a group may end after static objects have
  return *instance;
}

void tell_of_nonfinite() {
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) {
    say(std::string(drop_in::kNonfiniteWarning));
  }
}

std::string key_of(int rank) { return "settings/" + std::to_string(rank); }

}  // namespace

drop_in::Ledger& ledger() {
  static auto* const instance = new drop_in::Ledger;
  return *instance;
}

Core::Core(const transport::Rendezvous& store, const CoreOptions& options)
    : store_(store), options_(options), configuration_(drop_in::Configuration::read(true)) {
  // The job's own: a rank may be late by an evaluation. A rank that has ended is known at once.
  configuration_.timeout =
      environment("GRADWIRE_TIMEOUT") ? std::min(configuration_.longest_wait(), options.timeout) : options.timeout;
  configuration_.recording.reset();  // a choice is kept by communicators of MPI, which have names
  configuration_.script.reset();
  agreement_ = agree(store);
  only_exact_ = configuration_.planner.only_exact();
  if (options.first) {
    drop_in::observe_process({.part = "torch",
                              .rank = [rank = options.rank] { return std::optional(rank); },
                              .calls = [] { return drop_in::replaced_calls(ledger()); }});
  }
  if (options.first && options.rank == 0) {
    const std::lock_guard lock(reporting().mutex);
    reporting().head = {.world_size = options.world_size,
                        .implementation = "c10d",
                        .dry_run = configuration_.dry_run,
                        .policy = configuration_.planner.policy().source,
                        .disabled = agreement_.disabled_because,
                        .note = options.world_size > 1 ? "numbers of rank 0 alone" : ""};
    reporting().file = configuration_.report;
    reporting().quiet = configuration_.quiet;
  }
  if (options.rank == 0 && !agreement_.disabled_because.empty() && !configuration_.quiet) {
    say(agreement_.warning());
  }
  member_ = std::make_unique<drop_in::Member>(configuration_, ledger(), agreement_, [this] { return connect(); });
  if (options.world_size > 1) {
    queue_ = std::make_unique<drop_in::CallQueue>();
  }
}

Core::~Core() = default;

drop_in::Agreement Core::agree(const transport::Rendezvous& store) const {
  const auto mine = drop_in::RankSettings::of(configuration_);
  store.put(key_of(options_.rank), std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)));
  std::vector<drop_in::RankSettings> all(static_cast<std::size_t>(options_.world_size), mine);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    std::string text;
    try {
      text = store.get(key_of(rank), configuration_.longest_wait());
    } catch (const std::exception& error) {
      throw Error(ErrorCode::timeout,
                  "gradwire rank " + std::to_string(options_.rank) + ": rank " + std::to_string(rank) +
                      " has not joined the process group within " + format_duration(configuration_.longest_wait()) +
                      "; is it alive, and does it use the backend gradwire too? (" + error.what() + ")");
    }
    if (text.size() != sizeof(mine)) {
      throw Error(ErrorCode::mismatch, "gradwire: rank " + std::to_string(rank) +
                                           " runs another version of gradwire; give every rank the same one");
    }
    std::memcpy(static_cast<void*>(&all[static_cast<std::size_t>(rank)]), text.data(), text.size());
  }
  return drop_in::agree(all);
}

std::shared_ptr<Transport> Core::connect() const {
  if (environment("GRADWIRE_TORCH_TRANSPORT") == "mpi") {
    return connect_over_mpi(store_, options_.rank, options_.world_size, configuration_.longest_wait());
  }
  return transport::make_tcp(store_, {.rank = options_.rank,
                                      .world_size = options_.world_size,
                                      .interface = environment("GRADWIRE_SOCKET_IFNAME").value_or(""),
                                      .timeout = configuration_.longest_wait()});
}

drop_in::Call Core::describe(drop_in::Function function, std::optional<DType> dtype, std::optional<Reduction> reduction,
                             std::uint64_t count) const {
  return {
      .function = function, .dtype = dtype, .reduction = reduction, .count = count, .world_size = options_.world_size};
}

bool Core::takes(drop_in::Function function, std::optional<DType> dtype, std::optional<Reduction> reduction,
                 std::uint64_t count, std::uint64_t bytes) {
  drop_in::Call call = describe(function, dtype, reduction, count);
  // Nothing is to be routed then. But a reduce-scatter that passes blocks, which the thread may and the caller may not.
  call.policy_exact = only_exact_ && function == drop_in::Function::c10d_all_reduce;
  const drop_in::Decision decision = drop_in::decide(call, member_->settings());
  if (decision.compress) {
    return true;
  }
  ++others_;
  ledger().add({.function = function,
                .dtype = dtype,
                .count = count,
                .communicator_size = options_.world_size,
                .reason = decision.reason},
               drop_in::passed_totals(function, 1, bytes, options_.world_size));
  return false;
}

void Core::count_other(std::uint64_t bytes) {
  ++others_;
  ledger().add({.communicator_size = options_.world_size, .reason = drop_in::Reason::function},
               drop_in::passed_totals(drop_in::Function::other, 1, bytes, options_.world_size));
}

void Core::post(Posted posted) {
  queue_->post([this, others = others_, mine = std::make_shared<Posted>(std::move(posted))] { make(*mine, others); });
}

void Core::make(const Posted& posted, std::uint64_t others) {
  std::exception_ptr error;
  try {
    if (!failure_.empty()) {
      throw Error(ErrorCode::aborted, failure_);
    }
    route_and_make(posted, others);
  } catch (...) {
    if (failure_.empty()) {
      failure_ = "an earlier reduction of this process group failed: " + std::string(current_error().what());
    }
    error = std::make_exception_ptr(std::runtime_error("gradwire: " + std::string(current_error().what())));
  }
  posted.done(error);
}

void Core::route_and_make(const Posted& posted, std::uint64_t others) {
  const drop_in::Member::Route route =
      member_->route(describe(posted.function, posted.dtype, posted.reduction, posted.count),
                     posted.reduction == Reduction::sum ? "sum" : "mean",
                     {.name = posted.name, .buffer = posted.input, .others = others, .order = posted.order});
  const auto begin = std::chrono::steady_clock::now();
  const ConstView input{posted.input, posted.count, posted.dtype};
  if (route.turn.trial) {
    make_both_ways(posted, route);
  } else if (route.decision.compress && !member_->dry_run()) {
    if (posted.counts.empty()) {
      member_->all_reduce(route, input, {posted.output, posted.count, posted.dtype}, posted.reduction);
    } else {
      const std::uint64_t own = posted.counts[static_cast<std::size_t>(options_.rank)];
      member_->reduce_scatter(route, input, {posted.output, own, posted.dtype}, posted.counts, posted.reduction);
    }
  } else {
    posted.pass();
    member_->count_passed(route, posted.count * element_bytes(posted.dtype), seconds_since(begin));
  }
  for (const std::string& line : member_->take_lines()) {
    if (!configuration_.quiet) {
      say(line);
    }
  }
  if (options_.rank == 0 && !configuration_.quiet && ledger().nonfinite()) {
    tell_of_nonfinite();
  }
  if (route.turn.timed) {
    member_->measured(seconds_since(begin));
  }
}

// The result is Gloo's.
void Core::make_both_ways(const Posted& posted, const drop_in::Member::Route& route) {
  const std::uint64_t own =
      posted.counts.empty() ? posted.count : posted.counts[static_cast<std::size_t>(options_.rank)];
  const ConstView input{posted.input, posted.count, posted.dtype};
  member_->begin_trial(route, input, true, posted.counts, posted.reduction);  // Gloo may use it
  const auto begin = std::chrono::steady_clock::now();
  try {
    posted.pass();
  } catch (...) {
    member_->drop_trial();
    throw;
  }
  const double seconds = seconds_since(begin);
  member_->end_trial(seconds, {posted.output, own, posted.dtype});
  member_->count_passed(route, posted.count * element_bytes(posted.dtype), seconds);
}

void report() noexcept {
  try {
    const std::lock_guard lock(reporting().mutex);
    const auto head = std::exchange(reporting().head, std::nullopt);
    if (!head || !ledger().any()) {
      return;
    }
    if (const auto& file = reporting().file) {
      if (const auto problem = drop_in::write_report(*file, drop_in::report_json(*head, ledger()))) {
        say(*problem);
      }
    }
    if (!reporting().quiet) {
      say(drop_in::report_summary(*head, ledger()));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the job itself has ended well
  }
}

}  // namespace gradwire::torch_c10d
