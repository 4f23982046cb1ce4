#include "drop_in/device_reducer.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/current_error.hpp"
#include "plan/hash.hpp"

namespace gradwire::drop_in {
namespace {

using exchange::CurrentDevice;
using Queue = exchange::StreamBackend::Queue;

// What a rank tells the others about itself, as bytes.
struct DeviceRank {
  RankSettings settings;
  std::uint64_t process = 0;
  std::uint64_t identity = 0;  // rank 0's becomes the communicator's
  std::uint64_t name = 0;      // hash of the communicator's name
};

// Returns a number that no other communicator of this process gets and, most likely, none of another process.
std::uint64_t new_identity(std::uint64_t process) {
  static std::atomic<std::uint64_t> made = 0;
  std::uint64_t mixed = process + 0x9e3779b97f4a7c15 * ++made;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

// Whether two of the values are equal.
bool any_twice(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

// A group of messages that is closed even if one of them fails: otherwise the library keeps it open for the thread.
class MessageGroup {
 public:
  explicit MessageGroup(exchange::StreamBackend& backend) : backend_(backend) { backend_.begin_group(); }
  ~MessageGroup() {
    if (open_) {
      try {
        backend_.end_group();
      } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is on its way
      }
    }
  }
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;

  void end() {
    open_ = false;
    backend_.end_group();
  }

 private:
  exchange::StreamBackend& backend_;
  bool open_ = true;
};

// Lets calls work in memory that is given back.
class Loan {
 public:
  Loan(memory::Arena& arena, std::span<std::byte> memory) : arena_(arena) {
    arena_.begin_loan(memory.data(), memory.size());
  }
  ~Loan() { arena_.end_loan(); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  memory::Arena& arena_;
};

AgreedSettings agree_on_devices(std::span<const DeviceRank> ranks) {
  std::vector<RankSettings> all;
  std::vector<std::uint64_t> processes;
  for (const DeviceRank& rank : ranks) {
    all.push_back(rank.settings);
    processes.push_back(rank.process);
  }
  AgreedSettings agreement = agree(all);
  agreement.one_process = any_twice(std::move(processes));
  return agreement;
}

}  // namespace

DeviceReducer::DeviceReducer(const Configuration& configuration, Ledger& ledger, std::unique_ptr<DeviceLink> link,
                             std::uint64_t process, std::string name)
    : configuration_(configuration),
      ledger_(ledger),
      link_(std::move(link)),
      device_(link_->device()),
      backend_(device_.backend()),
      executor_(backend_),
      rank_(backend_.rank()),
      world_(backend_.world_size()),
      process_(process),
      frames_(device_.arena(), rank_, world_),
      name_(std::move(name)),
      exchange_(link_->exchange_port(), configuration.longest_wait()) {}

DeviceReducer::~DeviceReducer() = default;

void DeviceReducer::open() {
  const CurrentDevice current(device_);
  step_ = reinterpret_cast<std::uint32_t*>(backend_.acquire(sizeof(std::uint32_t)));
  Configuration configuration = configuration_;
  try {
    device_.load_kernels();
    if (configuration.compresses() || configuration.dry_run) {
      link_->exchange_port().open();
    }
  } catch (const Error& error) {
    configuration.disabled = configuration.disabled.empty() ? error.what() : configuration.disabled;
    configuration.mode = Mode::disabled;
  }
  disabled_ = configuration.disabled;
  DeviceRank mine{.settings = RankSettings::of(configuration),
                  .process = process_,
                  .identity = 0,
                  .name = plan::hash_of(name_.data(), name_.size(), 0)};
  mine.identity = new_identity(process_);
  upload(std::as_bytes(std::span(&mine, 1)));
}

void DeviceReducer::post() {
  const CurrentDevice current(device_);
  swap();
}

void DeviceReducer::close() {
  const CurrentDevice current(device_);
  const std::vector<std::byte> bytes = download();
  std::vector<DeviceRank> ranks(static_cast<std::size_t>(world_));
  std::memcpy(ranks.data(), bytes.data(), bytes.size());
  agreement_ = agree_on_devices(ranks);
  identity_ = ranks[0].identity;
  device_.zero(step_, sizeof(std::uint32_t));
  router_.emplace(configuration_, ledger_, agreement_, [this](std::uint64_t value) { return all_say(value); });
  if (std::all_of(ranks.begin(), ranks.end(), [&](const DeviceRank& rank) { return rank.name == ranks[0].name; })) {
    router_->set_communicator_name(name_);
  }
  if (configuration_.planner.is_auto() && agreement_.mode == Mode::compressing) {
    trials_.emplace(device_, link_->clock(), exchange_, link_->loans(),
                    [this](const choice::DeviceGate::Asked& asked) { return bytes_of_trial(asked); });
    router_->use_gate(trials_->gate());
  }
}

// The first exchange has the most bytes. Its memory serves all later ones, so that these need none.
void DeviceReducer::upload(std::span<const std::byte> mine) {
  agreeing_.each = mine.size();
  if (agreeing_.memory == nullptr) {
    agreeing_.memory = backend_.acquire(mine.size() * static_cast<std::size_t>(world_));
  }
  device_.upload(agreeing_.memory + static_cast<std::size_t>(rank_) * mine.size(), mine);
  backend_.wait(Queue::communication, backend_.record(Queue::compute));
}

void DeviceReducer::swap() {
  const auto part = [&](int rank) {
    return std::span(agreeing_.memory + static_cast<std::size_t>(rank) * agreeing_.each, agreeing_.each);
  };
  MessageGroup group(backend_);
  for (int distance = 1; distance < world_; ++distance) {
    const int to = (rank_ + distance) % world_;
    const int from = (rank_ + world_ - distance) % world_;
    backend_.send(part(rank_), to);
    backend_.receive(part(from), from);
  }
  group.end();
}

std::vector<std::byte> DeviceReducer::download() {
  backend_.wait(Queue::compute, backend_.record(Queue::communication));
  std::vector<std::byte> all(agreeing_.each * static_cast<std::size_t>(world_));
  device_.download(all, agreeing_.memory, configuration_.longest_wait());
  return all;
}

bool DeviceReducer::all_say(std::uint64_t value) {
  static_assert(sizeof value <= sizeof(DeviceRank));
  const CurrentDevice current(device_);
  upload(std::as_bytes(std::span(&value, 1)));
  swap();
  std::vector<std::uint64_t> values(static_cast<std::size_t>(world_));
  const std::vector<std::byte> bytes = download();
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return std::all_of(values.begin(), values.end(), [=](std::uint64_t other) { return other == value; });
}

std::vector<std::shared_ptr<const exchange::StreamExecution>> DeviceReducer::enqueue(std::span<const Job> jobs) {
  std::vector<void*> streams;
  for (const Job& job : jobs) {
    if (std::find(streams.begin(), streams.end(), job.reduce.stream) == streams.end()) {
      streams.push_back(job.reduce.stream);
      link_->set_caller(job.reduce.stream);
      device_.follow_caller();
    }
  }
  std::vector<std::shared_ptr<const exchange::StreamExecution>> executions;
  for (const Job& job : jobs) {
    const exchange::StreamCall call = resolve(job, sites_of(job));
    const Residuals residuals =
        is_placed(job) ? open_residuals(*job.route.keeps, call.resolved.call.residuals) : Residuals{};
    executions.push_back(
        start(executor_, job, static_cast<std::uint32_t>(executions.size()), call, residuals, load_factor(job.reduce)));
  }
  executor_.finish();
  for (std::byte* factor : std::exchange(factors_, {})) {
    backend_.release(factor);
  }
  device_.advance(step_);  // all jobs of a run have the same step, since their last kernels are only enqueued now
  for (void* stream : streams) {
    link_->set_caller(stream);
    device_.lead_caller();
  }
  return executions;
}

void DeviceReducer::run(std::span<const Job> jobs) {
  const CurrentDevice current(device_);
  forget_old_residuals();
  std::vector<std::shared_ptr<const exchange::StreamExecution>> executions;
  if (all_have_frames(jobs)) {
    executions = enqueue(jobs);
  } else {
    for (const Job& job : jobs) {
      executions.push_back(enqueue({&job, 1}).front());
    }
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (const auto& place = jobs[i].route.keeps; place && *place < residuals_.size() && !residuals_[*place].held) {
      release({&residuals_[*place], 1});  // this call has added them
      residuals_[*place] = {};
      if (*place < rooms_.size()) {  // others may take the memory, so the ranks will ask each other again
        room_taken_ -= rooms_[*place].value_or(0);
        rooms_[*place].reset();
      }
    }
    router_->count(jobs[i].route, executions[i]->statistics());
  }
}

// The copy holds the input where the call for the job comes first, since that may overwrite it.
int DeviceReducer::run_trial(const Job& job, std::uint64_t bytes, const LibraryCall& library) {
  const CurrentDevice current(device_);
  const choice::DeviceGate::Trial& trial = *job.route.trial;
  const bool scatters = job.route.what.function == Function::nccl_reduce_scatter;
  std::byte* copy = trials_->copy();
  Job rival{.route = job.route, .reduce = job.reduce};
  rival.route.stage = job.route.rival;
  rival.route.keeps.reset();
  rival.reduce.receive = copy;
  link_->set_caller(job.reduce.stream);
  device_.follow_caller();
  if (!trial.rival_first) {
    backend_.copy(copy, job.reduce.send, bytes);
    const std::uint64_t own = static_cast<std::uint64_t>(rank_) * job.reduce.count * element_bytes(job.reduce.dtype);
    rival.reduce.send = copy;
    rival.reduce.receive = scatters ? copy + own : copy;
  }
  device_.lead_caller();
  link_->exchange_port().meet(job.reduce.stream);
  const int code = trials_->make(
      trial, job.reduce.stream,
      [&] {
        if (job.route.decision.compress) {
          run({&job, 1});
          return 0;
        }
        router_->count_passed(job.route, bytes, 0);
        return library(job.reduce.send, job.reduce.receive);
      },
      [&] {
        if (trial.rival == 0) {
          return library(rival.reduce.send, rival.reduce.receive);
        }
        const Loan loan(device_.arena(), trials_->frames());
        enqueue({&rival, 1});
        return 0;
      });
  link_->set_caller(job.reduce.stream);
  device_.follow_caller();  // later work in the copy's memory comes behind the library's
  return code;
}

bool DeviceReducer::is_placed(const Job& job) const { return job.route.keeps && job.route.resets == resets_; }

DeviceReducer::Sites DeviceReducer::sites_of(const Job& job) const {
  const bool placed = is_placed(job);
  return {.feedback = placed && !job.route.folds,
          .held = placed && *job.route.keeps < residuals_.size() && residuals_[*job.route.keeps].held};
}

exchange::StreamCall DeviceReducer::resolve(const Job& job, Sites sites) const {
  const Router::Route& route = job.route;
  const bool scatters = route.what.function == Function::nccl_reduce_scatter;
  return exchange::make_stream_call(
      {.collective = scatters ? exchange::Collective::reduce_scatter : exchange::Collective::all_reduce,
       .algorithm = route.algorithm,
       .codec = route.stage.codec,
       .second_hop = route.stage.second_hop,
       .dtype = job.reduce.dtype,
       .count = scatters ? job.reduce.count * static_cast<std::uint64_t>(world_) : job.reduce.count,
       .segments = std::vector<std::uint64_t>(static_cast<std::size_t>(world_), job.reduce.count),
       .feedback = sites.feedback,
       .held = {.any = sites.held}},
      backend_, configuration_.planner.policy().chunk_bytes);
}

std::shared_ptr<const exchange::StreamExecution> DeviceReducer::start(exchange::StreamExecutor& executor,
                                                                      const Job& job, std::uint32_t index,
                                                                      const exchange::StreamCall& call,
                                                                      const Residuals& residuals,
                                                                      const double* factor) {
  const DeviceReduce& reduce = job.reduce;
  return executor.start(call.resolved.schedule,
                        exchange::make_stream_task(call, device_,
                                                   {.input = reduce.send,
                                                    .output = reduce.receive,
                                                    .step = step_,
                                                    .reduction = reduce.reduction,
                                                    .factor = reduce.factor,
                                                    .device_factor = factor,
                                                    .bucket = index,
                                                    .local_residual = residuals.local,
                                                    .owner_residual = residuals.owner,
                                                    .name = std::string(name_of(job.route.what.function)) + " of " +
                                                            std::to_string(call.request.count) + " elements"}));
}

// Returns a copy in the type that kernels read; null if the host knows the factor.
const double* DeviceReducer::load_factor(const DeviceReduce& reduce) {
  if (reduce.device_factor == nullptr) {
    return nullptr;
  }
  std::byte* copy = factors_.emplace_back(backend_.acquire(sizeof(double)));
  backend_.convert(reduce.device_factor, reduce.dtype, copy, DType::f64, 1, 1.0, nullptr, 1.0, nullptr);
  return reinterpret_cast<const double*>(copy);
}

DeviceReducer::Residuals DeviceReducer::open_residuals(std::size_t place, const exchange::ResidualUse& use) {
  residuals_.resize(std::max(residuals_.size(), place + 1));
  make_room(residuals_[place].local, use.local);
  make_room(residuals_[place].owner, use.owned);
  residuals_[place].held = use.keeps.any();
  return residuals_[place];
}

void DeviceReducer::make_room(exchange::DeviceRange<float>& range, const exchange::ResidualUse::Range& wanted) {
  if (range.data != nullptr || wanted.count == 0) {
    return;
  }
  range = {reinterpret_cast<float*>(link_->lasting().acquire(wanted.count * sizeof(float))), wanted.first,
           wanted.count};
  device_.zero(range.data, wanted.count * sizeof(float));
}

void DeviceReducer::release(std::span<const Residuals> old) {
  for (const Residuals& one : old) {
    for (const auto& range : {one.local, one.owner}) {
      if (range.data != nullptr) {
        link_->lasting().release(reinterpret_cast<std::byte*>(range.data));
      }
    }
  }
}

std::uint64_t DeviceReducer::residual_bytes() const noexcept {
  std::uint64_t elements = 0;
  for (const Residuals& one : residuals_) {
    elements += one.local.count + one.owner.count;
  }
  return elements * sizeof(float);
}

std::uint32_t DeviceReducer::take_bad_frames() noexcept {
  const std::uint32_t now = std::atomic_ref(device_.status().bad_frames).load(std::memory_order_relaxed);
  return now - std::exchange(bad_frames_, now);
}

}  // namespace gradwire::drop_in
