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
      name_(std::move(name)),
      exchange_(link_->exchange_port(), configuration.longest_wait()) {}

DeviceReducer::~DeviceReducer() = default;

void DeviceReducer::open() {
  const CurrentDevice current(device_);
  step_ = reinterpret_cast<std::uint32_t*>(backend_.acquire(sizeof(std::uint32_t)));
  Configuration configuration = configuration_;
  try {
    device_.load_kernels();
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
  upload(agreeing_, std::as_bytes(std::span(&mine, 1)));
}

void DeviceReducer::post() {
  const CurrentDevice current(device_);
  link_->gather(agreeing_.memory, agreeing_.each);
}

void DeviceReducer::close() {
  const CurrentDevice current(device_);
  const std::vector<std::byte> bytes = download(agreeing_);
  std::vector<DeviceRank> ranks(static_cast<std::size_t>(world_));
  std::memcpy(ranks.data(), bytes.data(), bytes.size());
  agreement_ = agree_on_devices(ranks);
  identity_ = ranks[0].identity;
  device_.zero(step_, sizeof(std::uint32_t));
  router_.emplace(configuration_, ledger_, agreement_, [this](std::uint64_t value) { return all_say(value); });
  if (std::all_of(ranks.begin(), ranks.end(), [&](const DeviceRank& rank) { return rank.name == ranks[0].name; })) {
    router_->set_communicator_name(name_);
  }
  if (agreement_.mode == Mode::compressing || agreement_.dry_run) {
    link_->exchange_port().open();
  }
  if (configuration_.planner.is_auto() && agreement_.mode == Mode::compressing) {
    trials_.emplace(device_, link_->clock(), exchange_);
    router_->use_gate(trials_->gate());
  }
}

void DeviceReducer::upload(Exchange& exchange, std::span<const std::byte> mine) {
  exchange.each = mine.size();
  exchange.memory = backend_.acquire(mine.size() * static_cast<std::size_t>(world_));
  device_.upload(exchange.memory + static_cast<std::size_t>(rank_) * mine.size(), mine);
  backend_.wait(Queue::communication, backend_.record(Queue::compute));
}

std::vector<std::byte> DeviceReducer::download(Exchange& exchange) {
  backend_.wait(Queue::compute, backend_.record(Queue::communication));
  std::vector<std::byte> all(exchange.each * static_cast<std::size_t>(world_));
  device_.download(all, exchange.memory, configuration_.longest_wait());
  backend_.release(std::exchange(exchange.memory, nullptr));
  return all;
}

template <class T>
std::vector<T> DeviceReducer::gather(const T& mine) {
  const CurrentDevice current(device_);
  Exchange exchange;
  link_->begin_run(false);
  upload(exchange, std::as_bytes(std::span(&mine, 1)));
  link_->gather(exchange.memory, exchange.each);
  std::vector<T> all(static_cast<std::size_t>(world_));
  const std::vector<std::byte> bytes = download(exchange);
  link_->end_run(false);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

bool DeviceReducer::all_say(std::uint64_t value) {
  const std::vector<std::uint64_t> values = gather(value);
  return std::all_of(values.begin(), values.end(), [=](std::uint64_t other) { return other == value; });
}

// The first calls that are compressed are the same ones on all ranks, and so are those that are captured. The exchange
// of offers ends behind all earlier calls on the job's communicator: NCCL wants none under way when it is split.
void DeviceReducer::open_own_communicator(const Job& first) {
  OwnCommunicator* const own = link_->own_communicator();
  if (own == nullptr || own->settled() || first.reduce.captured) {
    return;
  }
  const std::vector<OwnCommunicator::Offer> offers = gather(own->offer());
  const bool made = own->make(offers);
  const bool all = all_say(made ? 1 : 0) && made;
  own->settle(all);
  if (!all && rank_ == 0) {
    lines_.push_back("a communicator of " + std::to_string(world_) +
                     " ranks gets no second one for gradwire's messages, since NCCL or the memory of some rank refuses "
                     "it: the job's calls on it come behind the compressed ones before them");
  }
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
  const bool captured = jobs.front().reduce.captured;
  link_->begin_run(captured);
  std::vector<std::shared_ptr<const exchange::StreamExecution>> executions;
  for (const Job& job : jobs) {
    executions.push_back(enqueue(job, static_cast<std::uint32_t>(executions.size())));
  }
  executor_.finish();
  for (std::byte* factor : std::exchange(factors_, {})) {
    backend_.release(factor);
  }
  device_.advance(step_);  // all jobs of a run have the same step, since their last kernels are only enqueued now
  link_->end_run(captured);
  for (void* stream : streams) {
    link_->set_caller(stream);
    device_.lead_caller();
  }
  if (captured) {
    device_.arena().fence();
  }
  return executions;
}

void DeviceReducer::run(std::span<const Job> jobs) {
  const CurrentDevice current(device_);
  open_own_communicator(jobs.front());
  forget_old_residuals();
  const auto executions = enqueue(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (const auto& place = jobs[i].route.keeps; place && *place < residuals_.size() && !residuals_[*place].held) {
      drop_residuals(*place);  // this call has added them
    }
    router_->count(jobs[i].route, executions[i]->statistics());
  }
}

// The copy holds the input where the call for the job comes first, since that may overwrite it.
int DeviceReducer::run_trial(const Job& job, std::uint64_t bytes, const LibraryCall& library) {
  const CurrentDevice current(device_);
  open_own_communicator(job);
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
        enqueue({&rival, 1});
        return 0;
      });
  link_->set_caller(job.reduce.stream);
  device_.follow_caller();  // later work in the copy's memory comes behind the library's
  return code;
}

exchange::StreamCall DeviceReducer::resolve(const Router::Route& route, const DeviceReduce& reduce, bool feedback,
                                            bool held) const {
  const bool scatters = route.what.function == Function::nccl_reduce_scatter;
  return exchange::make_stream_call(
      {.collective = scatters ? exchange::Collective::reduce_scatter : exchange::Collective::all_reduce,
       .algorithm = route.algorithm,
       .codec = route.stage.codec,
       .second_hop = route.stage.second_hop,
       .dtype = reduce.dtype,
       .count = scatters ? reduce.count * static_cast<std::uint64_t>(world_) : reduce.count,
       .segments = std::vector<std::uint64_t>(static_cast<std::size_t>(world_), reduce.count),
       .feedback = feedback,
       .held = {.any = held}},
      backend_, configuration_.planner.policy().chunk_bytes);
}

std::shared_ptr<const exchange::StreamExecution> DeviceReducer::enqueue(const Job& job, std::uint32_t index) {
  const DeviceReduce& reduce = job.reduce;
  const Router::Route& route = job.route;
  const bool scatters = route.what.function == Function::nccl_reduce_scatter;
  const std::uint64_t count = scatters ? reduce.count * static_cast<std::uint64_t>(world_) : reduce.count;
  const bool place = route.keeps && route.resets == resets_;
  const bool held = place && *route.keeps < residuals_.size() && residuals_[*route.keeps].held;
  const exchange::StreamCall call = resolve(route, reduce, place && !route.folds, held);
  const Residuals residuals = place ? open_residuals(*route.keeps, call.resolved.call.residuals) : Residuals{};
  return executor_.start(call.resolved.schedule,
                         exchange::make_stream_task(call, device_,
                                                    {.input = reduce.send,
                                                     .output = reduce.receive,
                                                     .step = step_,
                                                     .reduction = reduce.reduction,
                                                     .factor = reduce.factor,
                                                     .device_factor = load_factor(reduce),
                                                     .bucket = index,
                                                     .local_residual = residuals.local,
                                                     .owner_residual = residuals.owner,
                                                     .name = std::string(name_of(route.what.function)) + " of " +
                                                             std::to_string(count) + " elements"}));
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
  range = {reinterpret_cast<float*>(device_.arena().acquire_lasting(wanted.count * sizeof(float))), wanted.first,
           wanted.count};
  device_.zero(range.data, wanted.count * sizeof(float));
}

void DeviceReducer::release(std::span<const Residuals> old) {
  for (const Residuals& one : old) {
    for (const auto& range : {one.local, one.owner}) {
      if (range.data != nullptr) {
        backend_.release(reinterpret_cast<std::byte*>(range.data));
      }
    }
  }
}

void DeviceReducer::drop_residuals(std::size_t place) {
  if (place < residuals_.size()) {
    release({&residuals_[place], 1});
    residuals_[place] = {};
  }
  if (place < rooms_.size()) {  // others may take the memory
    room_taken_ -= rooms_[place].value_or(0);
    rooms_[place].reset();
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
