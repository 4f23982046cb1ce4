#include "exchange/stream/stream_executor.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/current_error.hpp"
#include "exchange/stream/stream_lane.hpp"
#include "exchange/stream/window_calls.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::size_t kTotals = 3;  // the numbers that sum_weights() writes
constexpr std::uint64_t kLeastChunkBytes = 256ULL << 10;
constexpr std::uint64_t kLaneBytes = 32 * kMostChunkBytes;  // one chunk of every rank

// A scope that profilers show by its name.
class NamedRange {
 public:
  NamedRange(StreamBackend& backend, const char* name) : backend_(backend) { backend_.begin_range(name); }
  ~NamedRange() { backend_.end_range(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  StreamBackend& backend_;
};

[[noreturn]] void reject(const StreamTask& task, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, task.name + ": " + what);
}

void check(const StreamTask& task, int world) {
  if (task.call.weighted && (!(task.weight >= 0) || !std::isfinite(task.weight))) {
    reject(task, "weight " + std::to_string(task.weight) + " must be finite and not below 0");
  }
  const bool holds = task.local_residual.data != nullptr || task.owner_residual.data != nullptr;
  if (world == 1 && task.call.weighted && task.weight == 0 && holds) {
    reject(task, "the weights of all ranks sum to 0; at least one must be above 0");
  }
  if (element_bytes(task.dtype) == 0) {
    reject(task, "unknown dtype " + std::to_string(static_cast<int>(task.dtype)) + "; use f32, f16, bf16 or f64");
  }
  if (task.call.codecs.first.working() == codec::Working::f64 && task.dtype != DType::f64) {
    reject(task, "codecs that work in f64 over a tensor of " + std::string(to_string(task.dtype)));
  }
  if (task.count > 0 && (task.step == nullptr || task.status == nullptr)) {
    reject(task, "the step counter and the status words must be in device memory, not null");
  }
}

}  // namespace

ChunkSize stream_chunks(int world_size, std::optional<std::uint64_t> asked) noexcept {
  const std::uint64_t share = kLaneBytes / static_cast<std::uint64_t>(std::max(1, world_size));
  const std::uint64_t most = kernels::kMostSumBytes / 2 / static_cast<std::uint64_t>(std::max(1, world_size));
  ChunkSize chunks =
      ChunkSize::as_asked(std::min(most, asked.value_or(std::clamp(share, kLeastChunkBytes, kMostChunkBytes))));
  chunks.asked = asked.has_value();
  return chunks;
}

StreamExecutor::StreamExecutor(StreamBackend& backend, StreamExecutorOptions options)
    : backend_(backend), options_(std::move(options)) {}

StreamExecutor::~StreamExecutor() = default;

template <class Body>
void StreamExecutor::guarded(Body&& body) {
  if (failure_) {
    throw Error(ErrorCode::aborted, std::string("gradwire gave up earlier: ") + failure_->what(), failure_->cause());
  }
  try {
    std::forward<Body>(body)();
  } catch (...) {
    const Error error = current_error();
    failure_ = error;
    if (in_group_) {
      try {
        backend_.end_group();  // otherwise the library keeps a group open for the thread
      } catch (...) {          // the first error is the one to report
        in_group_ = false;
      }
    }
    lanes_.clear();
    joints_.clear();
    parked_.clear();
    throw Error(error);
  }
}

std::shared_ptr<StreamExecution> StreamExecutor::open(Schedule schedule, StreamTask task) {
  check(task, backend_.world_size());
  auto execution = std::make_shared<StreamExecution>();
  StreamExecution& e = *execution;
  e.schedule_ = std::move(schedule);
  e.task_ = std::make_unique<StreamTask>(std::move(task));
  e.lanes_left_ = e.schedule_.lanes;
  e.sequence_ = next_sequence_++;
  e.statistics_.calls = 1;
  e.statistics_.elements = e.task_->count;
  e.statistics_.bytes_in = e.task_->count * element_bytes(e.task_->dtype);
  return execution;
}

std::shared_ptr<const StreamExecution> StreamExecutor::start(Schedule schedule, StreamTask task) {
  std::shared_ptr<StreamExecution> execution;
  guarded([&] {
    const int world = backend_.world_size();
    execution = open(std::move(schedule), std::move(task));
    StreamExecution& e = *execution;
    const NamedRange range(backend_, e.task_->name.c_str());
    if (windows_ != nullptr && windows_->takes(e.schedule_, *e.task_)) {
      start_in_windows(e);
      return;
    }
    if (e.task_->call.weighted && world > 1 && e.lanes_left_ > 0) {
      e.totals_ = reinterpret_cast<double*>(backend_.acquire(kTotals * sizeof(double)));
    }
    const std::uint64_t lanes = e.schedule_.lanes;
    for (std::uint64_t index = 0; index < lanes; ++index) {
      std::vector<std::unique_ptr<StreamLane>> lane;
      lane.push_back(std::make_unique<StreamLane>(*this, execution, index));
      turn(std::move(lane));
      if (index == 0 && e.totals_ != nullptr && e.task_->call.weights_first()) {
        turn({});  // lane 1 is encoded after the sum of weights
      }
    }
  });
  return execution;
}

bool StreamExecutor::joins(const Schedule& schedule, const StreamTask& task) const {
  const codec::Codec& first = task.call.codecs.first;
  const codec::Codec& second = task.call.codecs.second;
  const auto world = static_cast<std::uint64_t>(backend_.world_size());
  const std::uint64_t tiles = (task.count + codec::kTileElements - 1) / codec::kTileElements;
  return world > 1 && schedule.chunk_elements != 0 && schedule.lanes == 1 && !task.call.weighted &&
         !task.call.preconditioned && first.lossy() && first.spec().k == 0 && first.spec() == second.spec() &&
         tiles >= world && (windows_ == nullptr || !windows_->takes(schedule, task));
}

std::vector<std::shared_ptr<const StreamExecution>> StreamExecutor::start(std::vector<Call> calls) {
  std::vector<std::shared_ptr<const StreamExecution>> executions;
  if (calls.size() == 1) {
    executions.push_back(start(std::move(calls[0].schedule), std::move(calls[0].task)));
    return executions;
  }
  guarded([&] {
    std::vector<std::unique_ptr<StreamLane>> lanes;
    for (Call& call : calls) {
      if (!joins(call.schedule, call.task) ||
          call.task.call.codecs.first.spec() != calls[0].task.call.codecs.first.spec()) {
        throw Error(ErrorCode::internal, call.task.name + ": cannot be made together with others");
      }
    }
    for (Call& call : calls) {
      std::shared_ptr<StreamExecution> execution = open(std::move(call.schedule), std::move(call.task));
      lanes.push_back(std::make_unique<StreamLane>(*this, execution, 0));
      executions.push_back(std::move(execution));
    }
    const NamedRange range(backend_, "calls that are made together");
    joints_.push_back(std::make_shared<Joint>(backend_));
    StreamLane::lie_together(lanes, joints_.back());
    turn(std::move(lanes));
  });
  return executions;
}

void StreamExecutor::finish() {
  guarded([&] {
    const NamedRange range(backend_, "the last rounds of calls");
    drain();
  });
}

void StreamExecutor::drain() {
  while (!lanes_.empty()) {
    turn({});
  }
  catch_up({messages_[kMessages].groups, messages_[kNode].groups});
}

void StreamExecution::count_sent(std::uint64_t bytes, std::uint64_t elements, int rank, int peer) {
  statistics_.bytes_uncompressed += schedule_.dense_bytes(elements * element_bytes(task_->dtype));
  if (task_->tiers != nullptr) {
    task_->tiers->count_sent(statistics_, bytes, rank, peer);
  } else {
    statistics_.bytes_sent += bytes;
  }
}

// The kernels wait for other ranks on the compute queue, so no group may still wait to be enqueued behind them.
void StreamExecutor::start_in_windows(StreamExecution& execution) {
  drain();
  const StreamTask& task = *execution.task_;
  for (std::uint64_t index = 0; index < execution.schedule_.lanes; ++index) {
    const Lane lane = execution.schedule_.make_lane(index);
    backend_.all_reduce_windows(windows_->job(lane, task));
    for (const Instruction& instruction : lane.instructions) {
      if (instruction.opcode == Opcode::send) {
        const std::uint32_t count = instruction.chunk.count;
        execution.count_sent(task.call.codecs.of(instruction.hop).frame_bytes(count), count, backend_.rank(),
                             instruction.peer);
        ++execution.statistics_.frames_sent;
      }
    }
  }
  execution.lanes_left_ = 0;
}

std::shared_ptr<const StreamExecution> StreamExecutor::run(Schedule schedule, StreamTask task) {
  auto execution = start(std::move(schedule), std::move(task));
  finish();
  return execution;
}

// Runs one round of every lane in flight. The compute queue gets, while the last group of messages travels, the work
// that `fresh` needs for the next group; then the work that the lanes in flight need for it; and, behind the group,
// work that no message waits for. Lanes with sums inside a node have a group each: what a lane sends next waits for
// messages, and what the lane behind it sends first, for a sum, which often ends later.
void StreamExecutor::turn(std::vector<std::unique_ptr<StreamLane>> fresh) {
  Groups rest{};
  for (const Parked& parked : parked_) {
    raise(rest, parked.last);
  }
  for (const auto& lane : fresh) {
    lane->feed();
  }
  launch_joints();
  for (auto& lane : fresh) {
    if (lane->sums_in_node()) {
      lane->open_receives();
      use_library(*lane);
    }
    lanes_.push_back(std::move(lane));
  }
  std::vector<StreamLane*> together;
  for (const auto& lane : lanes_) {
    StreamLane* const alone = lane.get();
    if (lane->in_nodes()) {
      exchange({&alone, 1});
    } else {
      together.push_back(alone);
    }
  }
  exchange(together);
  for (const auto& lane : lanes_) {
    raise(rest, lane->rest_reads());
  }
  catch_up(rest);
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    if ((*lane)->finish_round()) {
      ++lane;
      continue;
    }
    StreamExecution& execution = (*lane)->execution();
    if (--execution.lanes_left_ == 0 && execution.totals_ != nullptr) {
      backend_.release(reinterpret_cast<std::byte*>(std::exchange(execution.totals_, nullptr)));
    }
    lane = lanes_.erase(lane);
  }
  launch_joints();
  std::erase_if(joints_, [](const std::shared_ptr<Joint>& joint) { return joint.use_count() == 1; });
}

void StreamExecutor::launch_joints() {
  for (const std::shared_ptr<Joint>& joint : joints_) {
    joint->launch();
  }
}

// Enqueues what the lanes send and receive in this round, behind what they compute for that.
void StreamExecutor::exchange(std::span<StreamLane* const> lanes) {
  Groups needed{};
  for (const StreamLane* lane : lanes) {
    raise(needed, lane->feed_reads());
  }
  catch_up(needed);
  for (StreamLane* lane : lanes) {
    lane->feed();
  }
  launch_joints();
  for (StreamLane* lane : lanes) {
    lane->open_receives();
  }
  if (std::any_of(lanes.begin(), lanes.end(), [](const StreamLane* lane) { return lane->communicates(); })) {
    follow_compute(kMessages);
    group(kMessages, [&](std::uint64_t number) {
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        lanes[i]->communicate(number);
        Joint* const joint = lanes[i]->joint();
        if (joint != nullptr && (i + 1 == lanes.size() || lanes[i + 1]->joint() != joint)) {
          joint->communicate();
        }
      }
    });
  }
  for (StreamLane* lane : lanes) {
    if (lane->uses_library()) {
      use_library(*lane);
    }
  }
}

// A gather inside the node sends what messages brought, and needs nothing else from the compute queue.
void StreamExecutor::use_library(StreamLane& lane) {
  const std::size_t queue = lane.in_nodes() ? kNode : kMessages;
  if (!lane.gathers()) {
    follow_compute(queue);
  } else if (const std::uint64_t brought = lane.brought(); brought > known_in_node_) {
    const Mark& mark = mark_behind(kMessages, brought);
    backend_.wait(Queue::node, mark.event);
    known_in_node_ = mark.group;
  }
  group(queue, [&](std::uint64_t number) { lane.use_library(number); });
}

const StreamExecutor::Mark& StreamExecutor::mark_behind(std::size_t queue, std::uint64_t group) {
  const std::deque<Mark>& marks = messages_[queue].marks;
  return *std::find_if(marks.begin(), marks.end(), [&](const Mark& mark) { return mark.group >= group; });
}

void StreamExecutor::catch_up(const Groups& needed) {
  for (const std::size_t queue : {kNode, kMessages}) {  // the node's queue may have waited for messages
    if (needed[queue] <= messages_[queue].waited) {
      continue;
    }
    const Mark& mark = mark_behind(queue, needed[queue]);
    backend_.wait(Queue::compute, mark.event);
    trace({.kind = StreamTrace::Kind::wait});
    messages_[queue].waited = mark.group;
    if (queue == kNode) {
      messages_[kMessages].waited = std::max(messages_[kMessages].waited, mark.known);
    }
  }
  for (const Parked& parked : std::exchange(parked_, {})) {
    if (waited_for(parked.last)) {
      backend_.release(parked.memory);
    } else {
      parked_.push_back(parked);
    }
  }
}

void StreamExecutor::follow_compute(std::size_t queue) {
  if (std::exchange(messages_[queue].behind, false)) {
    backend_.wait(kQueues[queue], backend_.record(Queue::compute));
  }
}

// Calls body(number) inside a group of the queue, with its number there.
template <class Body>
void StreamExecutor::group(std::size_t queue, Body&& body) {
  MessageQueue& messages = messages_[queue];
  const NamedRange range(backend_, "messages");
  trace({.kind = StreamTrace::Kind::group_begin});
  backend_.begin_group();
  in_group_ = true;
  std::forward<Body>(body)(++messages.groups);
  in_group_ = false;
  backend_.end_group();
  trace({.kind = StreamTrace::Kind::group_end});
  messages.marks.push_back({messages.groups, known_in_node_, backend_.record(kQueues[queue])});
  if (messages.marks.size() > StreamBackend::kLiveEvents) {
    messages.marks.pop_front();
  }
}

void StreamExecutor::trace(const StreamTrace& event) const {
  if (options_.trace) {
    options_.trace(event);
  }
}

}  // namespace gradwire::exchange
