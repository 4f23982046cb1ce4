#include "plugins/torch_c10d/group_engine.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/environment.hpp"
#include "base/timeout.hpp"
#include "base/units.hpp"
#include "drop_in/observed_calls.hpp"
#include "plugins/torch_c10d/connect.hpp"
#include "plugins/torch_c10d/reporting.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::torch_c10d {
namespace {

std::string key_of(int rank) { return "settings/" + std::to_string(rank); }

// "all_reduce of 1000 f32"
std::string text_of(const Asked& asked) {
  return std::string(asked.function == choice::Function::c10d_all_reduce ? "all_reduce" : "reduce_scatter") + " of " +
         std::to_string(asked.count) + (asked.dtype ? " " + std::string(to_string(*asked.dtype)) : " elements") +
         (asked.reduction ? "" : ", neither sum nor mean");
}

// The number of cores of this host. A rank does not know that of the others and takes it to be the same.
int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

const char* name_of(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "mean"; }

std::exception_ptr error_of(const std::string& why) {
  return std::make_exception_ptr(std::runtime_error("gradwire: " + why));
}

// Calls `done` the first time it is called, and never again.
std::function<void(std::exception_ptr)> once(std::function<void(std::exception_ptr)> done) {
  return [done = std::move(done), called = std::make_shared<std::atomic<bool>>(false)](std::exception_ptr error) {
    if (!called->exchange(true)) {
      done(std::move(error));
    }
  };
}

// Thrown for an error of the library's own call. Only that call fails; the ranks stay in step.
struct FailedPass {
  std::exception_ptr error;
};

void count_failed_call(drop_in::CallClass what, std::uint64_t bytes) {
  what.reason = choice::Reason::failed;
  what.codec.clear();
  ledger().add(what, {.calls = 1, .bytes_in = bytes});
}

}  // namespace

GroupEngine::GroupEngine(const transport::Rendezvous& store, const GroupEngineOptions& options)
    : store_(store), options_(options), configuration_(drop_in::Configuration::read(true)) {
  // The timeout is the job's, since a rank may be late by a whole evaluation. A rank that has ended is noticed at once.
  configuration_.timeout = checked_timeout(
      environment("GRADWIRE_TIMEOUT") ? std::min(configuration_.longest_wait(), options.timeout) : options.timeout,
      "the process group");
  configuration_.recording.reset();  // only communicators of MPI, which have names, can record a choice
  configuration_.script.reset();
  agreement_ = agree(store);
  only_exact_ = configuration_.planner.only_exact();
  if (options.first) {
    drop_in::observe_process({.part = "torch",
                              .rank = [rank = options.rank] { return std::optional(rank); },
                              .calls = [] { return drop_in::replaced_calls(ledger()); }});
  }
  if (options.first && options.rank == 0) {
    const MutexLock lock(reporting().mutex);
    reporting().head = {.world_size = options.world_size,
                        .implementation = "c10d",
                        .dry_run = configuration_.dry_run,
                        .policy = configuration_.planner.policy().source,
                        .disabled = agreement_.disabled_because,
                        .note = options.world_size > 1 ? "numbers of rank 0 alone" : "",
                        .has_key = environment("GRADWIRE_KEY").has_value()};
    reporting().file = configuration_.report;
    reporting().quiet = configuration_.quiet;
  }
  begin_observing();
  if (options.rank == 0 && !agreement_.disabled_because.empty() && !configuration_.quiet) {
    say(agreement_.warning());
  }
  reducer_ = std::make_unique<drop_in::HostReducer>(configuration_, ledger(), agreement_, [this] { return connect(); });
  if (options.world_size > 1 && agreement_.mode == drop_in::Mode::compressing) {
    if (!only_exact_) {
      watch_ = std::make_shared<CallWatch>(store_,
                                           CallWatch::Options{.rank = options.rank, .world_size = options.world_size},
                                           [this](const std::string& why) { abort(why); });
    }
    queue_ = std::make_unique<drop_in::CallQueue>();
  }
}

GroupEngine::~GroupEngine() {
  queue_.reset();
  if (watch_) {
    watch_->stop();  // passed calls may still call watch_->end() after this
  }
}

// Exchanges each rank's settings, followed by its host: a forecast needs to know which ranks share one.
drop_in::AgreedSettings GroupEngine::agree(const transport::Rendezvous& store) {
  const auto mine = drop_in::RankSettings::of(configuration_);
  const std::string host = options_.host.empty() ? transport::tcp::host_identity() : options_.host;
  store.put(key_of(options_.rank), std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)) + host);
  std::vector<drop_in::RankSettings> all(static_cast<std::size_t>(options_.world_size), mine);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    std::string text;
    try {
      text = store.get(key_of(rank), configuration_.longest_wait());
    } catch (const std::exception& error) {
      throw Error(ErrorCode::timeout,
                  "gradwire rank " + std::to_string(options_.rank) + ": rank " + std::to_string(rank) +
                      " has not joined the process group within " + format_duration(configuration_.longest_wait()) +
                      "; is it alive, and does it use the backend gradwire too? (" + error.what() + ")",
                  ErrorCause::world);
    }
    if (text.size() <= sizeof(mine)) {
      throw Error(ErrorCode::mismatch, "gradwire: rank " + std::to_string(rank) +
                                           " runs another version of gradwire; give every rank the same one");
    }
    std::memcpy(static_cast<void*>(&all[static_cast<std::size_t>(rank)]), text.data(), sizeof(mine));
    ++hosts_.try_emplace(text.substr(sizeof(mine)), drop_in::Observed::Host{.ranks = 0, .cores = cores()})
          .first->second.ranks;
  }
  return drop_in::agree(all);
}

// The rank that reports makes the Observing in its first group; its later groups use the same one.
void GroupEngine::begin_observing() {
  if (agreement_.mode != drop_in::Mode::observing || agreement_.dry_run || options_.world_size < 2) {
    return;
  }
  const MutexLock lock(reporting().mutex);
  if (options_.first && options_.rank == 0) {
    reporting().observing = std::make_shared<Observing>(configuration_, hosts_);
  }
  observing_ = reporting().observing;
}

void GroupEngine::observe(PassedCall& passed, const Asked& asked) const {
  const bool known =
      (passed.what.reason == choice::Reason::observing || passed.what.reason == choice::Reason::below_floor) &&
      asked.dtype && asked.reduction && asked.count > 0;
  std::optional<drop_in::ObservedClass> what;
  if (known) {
    what = {.function = asked.function, .dtype = *asked.dtype, .communicator_size = options_.world_size};
  }
  observing_->begin(what, {asked.dense ? asked.buffer : nullptr, asked.count, asked.dtype.value_or(DType::f32)});
  passed.observing = observing_;
  passed.begin = std::chrono::steady_clock::now();
}

std::shared_ptr<Transport> GroupEngine::connect() {
  // A rank that passes this call never connects, so check() ends the wait.
  std::shared_ptr<Transport> made = connect_ranks(store_, {.rank = options_.rank,
                                                           .world_size = options_.world_size,
                                                           .timeout = configuration_.longest_wait(),
                                                           .go_on = [this] {
                                                             if (watch_) {
                                                               watch_->check();
                                                             }
                                                           }});
  const MutexLock lock(transport_mutex_);
  transport_ = made;
  return made;
}

void GroupEngine::abort(const std::string& why) noexcept {
  const MutexLock lock(transport_mutex_);
  if (transport_) {
    transport_->abort(make_error(ErrorCode::mismatch, why));
  }
}

choice::Call GroupEngine::describe(const Asked& asked) const {
  return {.function = asked.function,
          .dtype = asked.dtype,
          .reduction = asked.reduction,
          .count = asked.count,
          .world_size = options_.world_size};
}

std::exception_ptr PassedCall::ended(std::exception_ptr error) const noexcept {
  const double seconds = seconds_since(begin);
  try {
    if (error) {
      count_failed_call(what, totals.bytes_in);
    } else {
      drop_in::CallTotals timed = totals;
      timed.seconds = seconds;
      ledger().add(what, timed);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory to count it
  }
  if (observing) {
    observing->end(error != nullptr);
  }
  if (watch) {
    error = error ? watch->explained(std::move(error)) : nullptr;
    watch->end(number);
  }
  return error;
}

std::optional<PassedCall> GroupEngine::passes(const Asked& asked, std::function<void(const std::string&)> fail) {
  choice::Call call = describe(asked);
  PassedCall passed;
  if (reducer_->dry_run()) {
    const drop_in::HostReducer::Route route = reducer_->route(call, asked.reduction ? name_of(*asked.reduction) : "",
                                                              {.buffer = asked.buffer, .others = other_calls_});
    passed.what = route.what;
    passed.totals = reducer_->passed_totals(route, asked.bytes);
    return passed;
  }
  // If the policy is exact, an all-reduce passes without the thread. A reduce-scatter still goes to the thread, since
  // passing it blocks, which must not happen in the caller.
  call.policy_exact = only_exact_ && asked.function == choice::Function::c10d_all_reduce;
  const choice::CallDecision decision = reducer_->decide(call);
  if (decision.compress) {
    return std::nullopt;
  }
  ++other_calls_;
  passed.what = {.function = asked.function,
                 .dtype = asked.dtype,
                 .op = decision.reason == choice::Reason::observing ? name_of(*asked.reduction) : "",
                 .count = asked.count,
                 .communicator_size = options_.world_size,
                 .reason = decision.reason};
  passed.totals = drop_in::passed_totals(asked.function, 1, asked.bytes, options_.world_size);
  if (watch_) {
    try {
      passed.number = watch_->begin(
          CallWatch::Way::passed, [asked] { return text_of(asked); }, std::move(fail));
    } catch (const Error& error) {
      count_failed(asked);
      throw std::runtime_error("gradwire: " + std::string(error.what()));
    }
    passed.watch = watch_;
  }
  if (observing_) {
    observe(passed, asked);
  }
  return passed;
}

void GroupEngine::count_other_call(std::uint64_t bytes, bool failed) {
  ++other_calls_;
  if (observing_) {
    observing_->begin_other_call();
  }
  const drop_in::CallClass what{.communicator_size = options_.world_size, .reason = choice::Reason::function};
  if (failed) {
    count_failed_call(what, bytes);
  } else {
    ledger().add(what, drop_in::passed_totals(choice::Function::other, 1, bytes, options_.world_size));
  }
}

void GroupEngine::post(Posted posted) {
  posted.done = once(std::move(posted.done));
  const auto mine = std::make_shared<const Posted>(std::move(posted));
  std::optional<std::uint64_t> number;
  try {
    if (watch_) {
      // Calls fail through `done`, since the thread may be inside the library's own call, which we cannot end.
      number = watch_->begin(
          CallWatch::Way::compressed, [mine] { return text_of(mine->asked); },
          [mine](const std::string& why) { mine->done(error_of(why)); });
    }
  } catch (const Error& error) {
    count_failed(mine->asked);
    mine->done(error_of(error.what()));
    return;
  }
  queue_->post([this, number, others = other_calls_, mine] {
    make(*mine, others);
    if (number) {
      watch_->end(*number);
    }
  });
}

void GroupEngine::make(const Posted& posted, std::uint64_t others) {
  std::exception_ptr error;
  try {
    if (!failure_.empty()) {
      throw Error(ErrorCode::aborted, failure_);
    }
    route_and_make(posted, others);
  } catch (const FailedPass& failed) {
    error = failed.error;
  } catch (...) {
    if (failure_.empty()) {
      failure_ = "an earlier reduction of this process group failed: " + std::string(current_error().what());
    }
    error = error_of(current_error().what());
    count_failed(posted.asked);
  }
  if (error && watch_) {
    error = watch_->explained(error);
  }
  posted.done(error);
}

void GroupEngine::count_failed(const Asked& asked) const {
  count_failed_call({.function = asked.function,
                     .dtype = asked.dtype,
                     .count = asked.count,
                     .communicator_size = options_.world_size},
                    asked.bytes);
}

void GroupEngine::route_and_make(const Posted& posted, std::uint64_t others) {
  const Asked& asked = posted.asked;
  const drop_in::HostReducer::Route route = reducer_->route(
      describe(asked), {.compress = true}, name_of(*asked.reduction), {.buffer = asked.buffer, .others = others});
  if (route.turn.trial) {
    make_both_ways(posted, route);
  } else if (!route.decision.compress) {
    pass(posted, route);
  } else {
    const auto begin = std::chrono::steady_clock::now();
    compress(posted, route);
    if (route.turn.timed) {
      reducer_->measured(seconds_since(begin));
    }
  }
  for (const std::string& line : reducer_->take_lines()) {
    if (!configuration_.quiet) {
      say(line);
    }
  }
  if (options_.rank == 0 && !configuration_.quiet && ledger().nonfinite()) {
    tell_of_nonfinite();
  }
}

void GroupEngine::pass(const Posted& posted, const drop_in::HostReducer::Route& route) {
  const auto begin = std::chrono::steady_clock::now();
  std::exception_ptr error;
  try {
    posted.pass();
  } catch (...) {
    error = std::current_exception();
  }
  const double seconds = seconds_since(begin);
  if (route.turn.timed) {
    reducer_->measured(seconds);  // also if it failed: other ranks may not know that, and count this call
  }
  if (error) {
    count_failed_call(route.what, posted.asked.bytes);
    throw FailedPass{error};
  }
  reducer_->count_passed(route, posted.asked.bytes, seconds);
}

void GroupEngine::compress(const Posted& posted, const drop_in::HostReducer::Route& route) {
  const Asked& asked = posted.asked;
  const ConstView input{asked.buffer, asked.count, *asked.dtype};
  if (posted.counts.empty()) {
    reducer_->all_reduce(route, input, {posted.output, asked.count, *asked.dtype}, *asked.reduction);
  } else {
    const std::uint64_t own = posted.counts[static_cast<std::size_t>(options_.rank)];
    reducer_->reduce_scatter(route, input, {posted.output, own, *asked.dtype}, posted.counts, *asked.reduction);
  }
}

// Makes the reduction both compressed and by Gloo, whose result the job gets.
void GroupEngine::make_both_ways(const Posted& posted, const drop_in::HostReducer::Route& route) {
  const Asked& asked = posted.asked;
  const std::uint64_t own =
      posted.counts.empty() ? asked.count : posted.counts[static_cast<std::size_t>(options_.rank)];
  reducer_->begin_trial(route, {asked.buffer, asked.count, *asked.dtype}, true, posted.counts,
                        *asked.reduction);  // Gloo may overwrite the input
  const auto begin = std::chrono::steady_clock::now();
  try {
    posted.pass();
  } catch (...) {
    reducer_->drop_trial();
    count_failed_call(route.what, asked.bytes);
    throw FailedPass{std::current_exception()};
  }
  const double seconds = seconds_since(begin);
  reducer_->end_trial(seconds, {posted.output, own, *asked.dtype});
  reducer_->count_passed(route, asked.bytes, seconds);
}

}  // namespace gradwire::torch_c10d
