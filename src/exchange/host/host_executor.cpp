#include "exchange/host/host_executor.hpp"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "base/units.hpp"
#include "exchange/host/lane_run.hpp"
#include "observe/record.hpp"
#include "transport/operations.hpp"
#include "transport/silence.hpp"

namespace gradwire::exchange {
namespace {

// A caller that comes back sooner than this is polling, so the time between counts as waiting; one that stays away
// longer did something else.
constexpr std::chrono::microseconds kBetweenLooks{100};

WindowLimits bounded_by(const Transport& transport, WindowLimits limits) {
  limits.most_lanes = std::min(limits.most_lanes, transport.capabilities().most_lanes);
  return limits;
}

void check_receives(const Transport& transport, const Task& task) {
  const HopCodecs& codecs = task.call.codecs;
  for (const codec::Codec* each : {&codecs.first, &codecs.second, &codecs.node}) {
    if (each->packed() && !transport.capabilities().receives_at_most) {
      throw Error(ErrorCode::unsupported,
                  task.name + ": frames of codec " + each->spec().to_string() + " differ in size, and transport " +
                      transport.name() +
                      " receives only messages of a size that is known before; write codec = \"exact\"");
    }
  }
}

}  // namespace

HostExecutor::HostExecutor(Transport& transport, HostExecutorOptions options)
    : transport_(transport),
      options_(std::move(options)),
      tiers_(std::make_shared<const Tiers>(transport.nodes(), transport.world_size())),
      window_(bounded_by(transport, options_.window)),
      last_progress_(std::chrono::steady_clock::now()),
      left_(last_progress_) {}

void HostExecutor::set_window(WindowLimits limits) { window_.set_limits(bounded_by(transport_, limits)); }

HostExecutor::~HostExecutor() {
  if (!idle()) {
    fail(Error(ErrorCode::aborted, "destroyed with a collective under way"));
  }
}

std::shared_ptr<Execution> HostExecutor::start(Schedule schedule, Task task) {
  throw_if_failed();
  if (task.call.weighted && (!(task.weight >= 0) || !std::isfinite(task.weight))) {
    throw Error(ErrorCode::invalid_argument,
                task.name + ": weight " + std::to_string(task.weight) + " must be finite and not below 0");
  }
  check_receives(transport_, task);
  auto execution = std::make_shared<Execution>();
  Execution& e = *execution;
  e.schedule_ = std::move(schedule);
  e.task_ = std::make_unique<Task>(std::move(task));
  e.lanes_left_ = e.schedule_.lanes;
  e.sequence_ = next_sequence_++;
  e.started_ = std::chrono::steady_clock::now();
  e.entered_ = observe::ticks();
  const bool alone = transport_.world_size() == 1;
  e.total_weight_ = alone && e.task_->call.weighted ? e.task_->weight : transport_.world_size();
  e.weights_known_ = !e.task_->call.weighted || alone;
  if (alone && e.task_->call.weighted && e.task_->weight == 0 && e.task_->residuals != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                e.task_->name + ": the weights of all ranks sum to 0; at least one must be above 0");
  }
  e.statistics_.calls = 1;
  e.statistics_.elements = e.task_->tensors.count();
  e.statistics_.bytes_in = e.task_->tensors.bytes();
  observe::record({.begin = e.entered_,
                   .bytes = e.statistics_.bytes_in,
                   .source = options_.source,
                   .step = e.task_->step,
                   .bucket = e.task_->bucket,
                   .kind = observe::EventKind::bucket_begin});
  if (e.lanes_left_ == 0) {
    note_end(e);
    e.done_ = true;
    return execution;
  }
  if (idle()) {
    last_progress_ = left_ = e.started_;
  }
  queue_.push_back(execution);
  return execution;
}

bool HostExecutor::advance(std::chrono::microseconds wait) {
  throw_if_failed();
  const auto outside = std::chrono::steady_clock::now() - left_;
  last_progress_ += outside;  // the caller used this time, not the peers
  if (waits_ && outside < kBetweenLooks && !lanes_.empty()) {
    const double seconds = std::chrono::duration<double>(outside).count();
    count_wait(seconds, seconds);
  }
  try {
    const bool all_open = open_lanes();
    bool worked = run_lanes();
    close_lanes();
    if (worked || outside >= kBetweenLooks) {
      end_wait(waited_until_);
    }
    if (!worked && !lanes_.empty()) {
      if (!all_open && !sending()) {
        window_.starved();
      }
      waits_since_ = waits_since_ != 0 ? waits_since_ : observe::ticks();
      const auto begin = std::chrono::steady_clock::now();
      worked = transport_.progress(wait);
      waited_until_ = observe::ticks();
      if (worked) {
        end_wait(waited_until_);
      } else if (options_.crowded && wait.count() <= 0) {
        std::this_thread::yield();
      }
      const auto end = std::chrono::steady_clock::now();
      if (end - begin > wait + AwakeTime::kLook) {
        last_progress_ += end - begin - AwakeTime::kLook;  // this process was stopped, and its peers probably too
      }
      count_wait(std::chrono::duration<double>(end - begin).count(), std::chrono::duration<double>(wait).count());
    }
    if (worked) {
      last_progress_ = std::chrono::steady_clock::now();
    } else if (!idle()) {
      check_timeout();
    }
    left_ = std::chrono::steady_clock::now();
    waits_ = !worked;
    if (worked && idle()) {
      memory::page_pool().tend(left_);
    }
    return worked;
  } catch (...) {
    const Error error = current_error();
    fail(error);
    throw Error(error);
  }
}

void HostExecutor::wait(const Execution& execution) {
  while (!execution.done()) {
    advance(std::chrono::milliseconds(1));
  }
}

// Returns false where the window keeps a lane back.
bool HostExecutor::open_lanes() {
  while (!queue_.empty()) {
    const std::shared_ptr<Execution>& execution = queue_.front();
    if (next_ == nullptr) {
      next_ = std::make_unique<LaneRun>(*this, execution, execution->next_lane_);
    }
    if (!window_.admits(next_->load())) {
      return false;
    }
    next_->open(window_);
    lanes_.push_back(std::move(next_));
    if (++execution->next_lane_ == execution->schedule_.lanes) {
      queue_.pop_front();
    }
  }
  return true;
}

bool HostExecutor::sending() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->sending(); });
}

bool HostExecutor::run_lanes() {
  bool worked = false;
  for (const auto& lane : lanes_) {
    const LaneRun::Outcome outcome = lane->run();
    if (outcome == LaneRun::Outcome::computed) {
      // Drives the transport, then begins again with the oldest lane: its steps free memory and feed the other ranks.
      transport_.progress(std::chrono::microseconds(0));
      return true;
    }
    worked = worked || outcome == LaneRun::Outcome::posted;
  }
  return worked;
}

void HostExecutor::close_lanes() {
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    if (!(*lane)->complete()) {
      ++lane;
      continue;
    }
    (*lane)->close(window_);
    Execution& execution = *(*lane)->execution();
    if (--execution.lanes_left_ == 0) {
      execution.statistics_.total_seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - execution.started_).count();
      note_end(execution);
      execution.done_ = true;
    }
    lane = lanes_.erase(lane);
  }
}

// `asked`: the length of the wait that the caller asked for.
void HostExecutor::count_wait(double seconds, double asked) noexcept {
  if (lanes_.empty()) {
    return;
  }
  lanes_.front()->execution()->statistics_.wire_seconds += seconds;
  if (peer_waits_ != nullptr) {
    peer_waits_->waited(seconds, asked);
  }
}

void HostExecutor::end_wait(std::uint64_t now) noexcept {
  if (waits_since_ == 0) {
    return;
  }
  observe::Event event{.begin = waits_since_,
                       .source = options_.source,
                       .duration = observe::duration_between(waits_since_, now),
                       .kind = observe::EventKind::wait};
  if (!lanes_.empty()) {
    event.step = lanes_.front()->execution()->task_->step;
    event.bucket = lanes_.front()->execution()->task_->bucket;
  }
  observe::record(event);
  waits_since_ = 0;
}

void HostExecutor::note_end(const Execution& execution) const noexcept {
  observe::record_since(execution.entered_, {.bytes = execution.statistics_.bytes_in,
                                             .source = options_.source,
                                             .step = execution.task_->step,
                                             .bucket = execution.task_->bucket,
                                             .kind = observe::EventKind::bucket_end});
}

void HostExecutor::check_timeout() {
  if (std::chrono::steady_clock::now() - last_progress_ < options_.timeout) {
    return;
  }
  // The message describes the oldest lane, since everything else waits for its first missing frames.
  const std::string wait = transport::describe_wait(transport_, lanes_.front()->missing(), options_.timeout);
  const Task& task = *lanes_.front()->execution()->task_;
  throw Error(ErrorCode::timeout,
              "rank " + std::to_string(transport_.rank()) + ": " +
                  std::string(lanes_.front()->execution()->schedule_.name) + " of " + task.name + " got nothing for " +
                  format_duration(options_.timeout) + ", " + wait,
              ErrorCause::world);
}

void HostExecutor::fail(const Error& error) noexcept {
  if (failure_) {
    return;
  }
  failure_ = error;
  transport_.abort(error);
  for (const auto& lane : lanes_) {
    lane->cancel(transport_);
  }
  lanes_.clear();
  next_.reset();
  queue_.clear();
}

void HostExecutor::throw_if_failed() const {
  if (failure_) {
    throw Error(ErrorCode::aborted, std::string("gradwire gave up earlier: ") + failure_->what(), failure_->cause());
  }
}

}  // namespace gradwire::exchange
