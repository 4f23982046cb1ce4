#include "gradwire/session.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "session/bucket_runner.hpp"
#include "session/logging.hpp"

namespace gradwire {

using session::BucketRunner;
using session::StepInfo;
using session::TensorMemory;

// Two locks: `mutex` guards what ready() and finish() share; `wire` is held by whoever communicates. Never take `wire`
// while holding `mutex`.
struct Session::State {
  State(std::shared_ptr<Transport> t, Policy p, SessionOptions o)
      : transport(std::move(t)),
        policy(std::move(p)),
        options(std::move(o)),
        runner(transport, options),
        owner(std::this_thread::get_id()) {}

  std::shared_ptr<Transport> transport;
  Policy policy;
  SessionOptions options;
  BucketRunner runner;
  std::thread::id owner;
  std::mutex wire;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<TensorInfo> tensors;
  std::vector<View> registered;      // gradients as added
  std::vector<TensorMemory> memory;  // gradients of this step
  std::vector<bool> is_ready;        // this step
  std::optional<plan::Plan> plan;
  std::vector<std::uint32_t> missing;  // by bucket: tensors that are not ready
  std::size_t next_bucket = 0;         // the first that has not started
  std::size_t ended_buckets = 0;
  bool agreed = false;
  bool weighted = false;
  double weight = 1;
  std::atomic<bool> no_sync{false};
  bool stopping = false;
  std::uint64_t step = 0;
  std::uint64_t counted_steps = 0;
  double exposed_seconds = 0;
  std::optional<Error> failure;
  std::thread thread;

  void throw_if_failed() const {
    if (failure) {
      throw Error(ErrorCode::aborted, std::string("the session gave up earlier: ") + failure->what());
    }
  }

  void make_plan() {
    if (plan) {
      return;
    }
    plan = plan::make_plan(policy, tensors,
                           {.world_size = transport->world_size(),
                            .reduction = options.reduction,
                            .checksum = options.checksum.value_or(transport->capabilities().checksum_by_default)});
    for (const std::string& warning : plan->warnings) {
      log(LogLevel::warning, warning);
    }
    log(LogLevel::debug, plan->explain());
    reset_step();
  }

  void reset_step() {
    memory.resize(registered.size());
    for (std::size_t i = 0; i < registered.size(); ++i) {
      memory[i] = {registered[i], false};
    }
    is_ready.assign(registered.size(), false);
    missing.clear();
    for (const plan::Bucket& bucket : plan->buckets) {
      missing.push_back(static_cast<std::uint32_t>(bucket.parts.size()));
    }
    next_bucket = 0;
    ended_buckets = 0;
  }

  [[nodiscard]] bool startable() const {
    return plan && !failure && next_bucket < plan->buckets.size() && missing[next_bucket] == 0;
  }
  [[nodiscard]] bool step_ended() const { return ended_buckets == plan->buckets.size(); }
  [[nodiscard]] bool in_step() const {
    return plan && std::find(is_ready.begin(), is_ready.end(), true) != is_ready.end();
  }

  // Starts what can start and moves what is under way. The caller holds `wire`.
  void communicate(std::chrono::microseconds wait) {
    try {
      for (;;) {
        const plan::Bucket* bucket = nullptr;
        StepInfo info;
        {
          const std::lock_guard lock(mutex);
          throw_if_failed();
          if (!startable()) {
            break;
          }
          bucket = &plan->buckets[next_bucket++];
          info = {static_cast<std::uint32_t>(step), weighted, weight};
        }
        if (!agreed) {
          runner.agree(*plan, weighted);
          agreed = true;
        }
        runner.start(*plan, *bucket, memory, info);
      }
      const std::size_t ended = runner.advance(wait);
      if (ended > 0) {
        const std::lock_guard lock(mutex);
        ended_buckets += ended;
        changed.notify_all();
      }
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
  }

  void give_up(const Error& error) noexcept {
    runner.fail(error.code(), error.what());
    const std::lock_guard lock(mutex);
    if (!failure) {
      failure = error;
    }
    changed.notify_all();
  }

  // The progress thread.
  void run() noexcept {
    try {
      for (;;) {
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [this] { return stopping || startable() || under_way(); });
          if (stopping) {
            return;
          }
        }
        const std::lock_guard lock(wire);
        communicate(std::chrono::microseconds(200));
      }
    } catch (const Error&) {  // give_up has kept it for the next call
    } catch (const std::exception& error) {
      give_up(Error(ErrorCode::internal, std::string("progress thread: ") + error.what()));
    }
  }
  [[nodiscard]] bool under_way() const { return plan && !failure && ended_buckets < next_bucket; }

  [[nodiscard]] bool background() const { return options.threading == Threading::background; }
  [[nodiscard]] bool may_communicate() const {
    return options.threading == Threading::serialized ||
           (options.threading == Threading::main_thread && std::this_thread::get_id() == owner);
  }

  // Progress inside calls, where there is no progress thread.
  void progress_inside_call() {
    if (!background() && may_communicate()) {
      const std::unique_lock lock(wire, std::try_to_lock);
      if (lock.owns_lock()) {
        communicate(std::chrono::microseconds(0));
      }
    }
  }

  void set_ready(TensorId id, const View* gradient, bool zero);
  void wait_for_step();
  void check_all_ready();
};

void Session::State::set_ready(TensorId id, const View* gradient, bool zero) {
  if (no_sync) {
    return;
  }
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    const auto index = static_cast<std::size_t>(id);
    if (index >= tensors.size()) {
      throw Error(ErrorCode::invalid_argument, "ready: tensor id " + std::to_string(index) + " is not one of the " +
                                                   std::to_string(tensors.size()) + " that add() returned");
    }
    make_plan();
    if (is_ready[index]) {
      throw Error(ErrorCode::invalid_argument, "ready: \"" + tensors[index].name + "\" was ready already in step " +
                                                   std::to_string(step) +
                                                   "; call finish() first, or accumulate under no_sync()");
    }
    if (gradient != nullptr) {
      if (gradient->count != tensors[index].count || gradient->dtype != tensors[index].dtype ||
          (gradient->data == nullptr && gradient->count > 0)) {
        throw Error(ErrorCode::invalid_argument,
                    "ready: \"" + tensors[index].name + "\" was added as " +
                        std::string(to_string(tensors[index].dtype)) + " x " + std::to_string(tensors[index].count) +
                        ", but is now " + std::string(to_string(gradient->dtype)) + " x " +
                        std::to_string(gradient->count) + (gradient->data == nullptr ? " with null data" : ""));
      }
      memory[index].gradient = *gradient;
    }
    memory[index].zero = zero;
    is_ready[index] = true;
    --missing[plan->tensors[index].bucket];
    if (background() && startable()) {
      changed.notify_all();
    }
  }
  progress_inside_call();
}

void Session::State::check_all_ready() {
  std::string names;
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    make_plan();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!is_ready[i] && ++count <= 5) {
        names += (names.empty() ? "\"" : ", \"") + tensors[i].name + "\"";
      }
    }
  }
  if (count == 0) {
    return;
  }
  const Error error(ErrorCode::invalid_argument, "finish: " + std::to_string(count) + " tensor(s) not ready on rank " +
                                                     std::to_string(transport->rank()) + " in step " +
                                                     std::to_string(step) + ": " + names + (count > 5 ? ", ..." : "") +
                                                     "; call ready(), or ready_zero() where there is no gradient");
  transport->abort(error.code(), error.what());
  const std::lock_guard lock(wire);
  give_up(error);
  throw error;
}

void Session::State::wait_for_step() {
  if (background()) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return failure.has_value() || step_ended(); });
    if (failure) {
      throw Error(*failure);
    }
    return;
  }
  if (!may_communicate()) {
    throw Error(
        ErrorCode::invalid_argument,
        "finish: with this MPI thread level only the thread that made the session may call it; use MPI_Init_thread "
        "with MPI_THREAD_MULTIPLE, or finish on that thread");
  }
  const std::lock_guard wire_lock(wire);
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      if (step_ended()) {
        return;
      }
    }
    communicate(std::chrono::milliseconds(1));
  }
}

Session::Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options) {
  session::bind_log();
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: transport is null");
  }
  state_ = std::make_unique<State>(std::move(transport), std::move(policy), std::move(options));
  if (state_->background()) {
    State* state = state_.get();
    state->thread = std::thread([state] { state->run(); });
  }
}

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  if (this != &other) {
    Session old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Session::~Session() {
  if (state_ == nullptr) {
    return;
  }
  bool under_way = false;
  {
    const std::lock_guard lock(state_->mutex);
    under_way = !state_->failure && (state_->under_way() || state_->in_step());
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (under_way) {
    state_->transport->abort(ErrorCode::aborted, "session destroyed in the middle of a step");
  }
  if (state_->thread.joinable()) {
    state_->thread.join();
  }
}

int Session::rank() const noexcept { return state_->transport->rank(); }
int Session::world_size() const noexcept { return state_->transport->world_size(); }

TensorId Session::add(std::string_view name, View gradient, std::uint32_t ndim) {
  const std::lock_guard lock(state_->mutex);
  state_->throw_if_failed();
  const std::string text(name);
  if (state_->plan) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + text +
                                                 "\" comes after the plan was made; add every tensor before the "
                                                 "first ready(), explain() or fingerprint()");
  }
  if (element_bytes(gradient.dtype) == 0) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + text + "\" has unknown dtype " +
                                                 std::to_string(static_cast<int>(gradient.dtype)) +
                                                 "; use f32, f16, bf16 or f64");
  }
  if (gradient.data == nullptr && gradient.count > 0) {
    throw Error(ErrorCode::invalid_argument,
                "add: \"" + text + "\" has null data with count " + std::to_string(gradient.count));
  }
  for (const TensorInfo& tensor : state_->tensors) {
    if (!text.empty() && tensor.name == text) {
      throw Error(ErrorCode::invalid_argument, "add: \"" + text + "\" was added already; names must differ");
    }
  }
  state_->tensors.push_back({text, gradient.count, gradient.dtype, ndim});
  state_->registered.push_back(gradient);
  return static_cast<TensorId>(state_->tensors.size() - 1);
}

void Session::broadcast(std::span<const View> values, int root) {
  State& state = *state_;
  for (const View& value : values) {
    if (element_bytes(value.dtype) == 0 || (value.data == nullptr && value.count > 0)) {
      throw Error(ErrorCode::invalid_argument, "broadcast: a value has null data or an unknown dtype");
    }
  }
  if (root < 0 || root >= world_size()) {
    throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                 " is not a rank of a world of " + std::to_string(world_size()));
  }
  if (!state.background() && !state.may_communicate()) {
    throw Error(ErrorCode::invalid_argument,
                "broadcast: with this MPI thread level only the thread that made the session may call it");
  }
  {
    const std::lock_guard lock(state.mutex);
    state.throw_if_failed();
    if (state.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: a step is under way; call it before the first ready() or after finish()");
    }
  }
  const std::lock_guard lock(state.wire);
  try {
    state.runner.broadcast(values, root);
  } catch (const Error& error) {
    state.give_up(error);
    throw;
  }
}

void Session::ready(TensorId id) { state_->set_ready(id, nullptr, false); }
void Session::ready(TensorId id, View gradient) { state_->set_ready(id, &gradient, false); }
void Session::ready_zero(TensorId id) { state_->set_ready(id, nullptr, true); }

void Session::finish() {
  State& state = *state_;
  const auto begin = std::chrono::steady_clock::now();
  if (state.no_sync) {
    throw Error(ErrorCode::invalid_argument,
                "finish: called under no_sync(); leave that scope for the last backward pass of a step");
  }
  state.check_all_ready();
  state.wait_for_step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<View> results;
  std::uint64_t ended_step = 0;
  {
    const std::lock_guard lock(state.mutex);
    for (const TensorMemory& tensor : state.memory) {
      results.push_back(tensor.gradient);
    }
    ended_step = state.step++;
    ++state.counted_steps;
    state.exposed_seconds += seconds;
    state.reset_step();
  }
  const std::uint64_t every = state.options.compare_ranks_every;
  if (every > 0 && (ended_step + 1) % every == 0) {
    const std::lock_guard lock(state.wire);
    try {
      state.runner.compare(results, ended_step);
    } catch (const Error& error) {
      state.give_up(error);
      throw;
    }
  }
}

void Session::set_no_sync(bool no_sync) { state_->no_sync = no_sync; }

void Session::set_weight(double samples) {
  const std::lock_guard lock(state_->mutex);
  state_->throw_if_failed();
  if (!(samples >= 0) || !std::isfinite(samples)) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: " + std::to_string(samples) + " must be finite and not below 0");
  }
  if (state_->in_step()) {
    throw Error(ErrorCode::invalid_argument,
                "set_weight: a step is under way; call it before the step's first ready()");
  }
  if (!state_->weighted && state_->step > 0) {
    throw Error(ErrorCode::invalid_argument, "set_weight: first called in step " + std::to_string(state_->step) +
                                                 "; call it from the first step on, on every rank");
  }
  state_->weighted = true;
  state_->weight = samples;
}

std::string Session::explain() {
  const std::lock_guard lock(state_->mutex);
  state_->make_plan();
  return state_->plan->explain();
}

std::string Session::fingerprint() {
  const std::lock_guard lock(state_->mutex);
  state_->make_plan();
  return state_->plan->fingerprint();
}

std::uint64_t Session::step() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

SessionStatistics Session::statistics() const {
  SessionStatistics statistics;
  const std::vector<Statistics> totals = state_->runner.statistics();
  const std::lock_guard lock(state_->mutex);
  const std::string emulation = state_->transport->capabilities().emulation;
  statistics.transport = state_->transport->name() + (emulation.empty() ? "" : ", " + emulation);
  statistics.rank = state_->transport->rank();
  statistics.world_size = state_->transport->world_size();
  statistics.steps = state_->counted_steps;
  statistics.exposed_seconds = state_->exposed_seconds;
  if (state_->plan) {
    for (std::size_t i = 0; i < state_->plan->groups.size(); ++i) {
      const plan::Group& group = state_->plan->groups[i];
      statistics.groups.push_back({.name = group.name,
                                   .codec = group.policy.codec.to_string(),
                                   .algorithm = std::string(to_string(group.policy.algorithm)),
                                   .compressed = group.policy.codec != CodecSpec::parse("exact"),
                                   .tensors = group.tensors,
                                   .totals = i < totals.size() ? totals[i] : Statistics{}});
    }
  }
  return statistics;
}

void Session::reset_statistics() {
  state_->runner.reset_statistics();
  const std::lock_guard lock(state_->mutex);
  state_->counted_steps = 0;
  state_->exposed_seconds = 0;
}

void Session::abort(const std::string& why) noexcept {
  state_->transport->abort(ErrorCode::aborted, why);
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) {
    try {
      state_->failure = Error(ErrorCode::aborted, why);
    } catch (const std::bad_alloc&) {  // the transport has it
    }
  }
  state_->changed.notify_all();
}

}  // namespace gradwire
