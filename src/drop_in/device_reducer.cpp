#include "drop_in/device_reducer.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <tuple>
#include <utility>

#include "exchange/stream/joined_calls.hpp"

namespace gradwire::drop_in {
namespace {

using exchange::CurrentDevice;

// Larger calls gain more where their messages travel while the next one is encoded.
constexpr exchange::JoinedSizes kJoined{.below = std::uint64_t{8} << 20, .enough = std::uint64_t{64} << 20};

// Names how a call was made, for reports.
const char* algorithm_text(DeviceMethod method) noexcept {
  switch (method) {
    case DeviceMethod::messages: return "";
    case DeviceMethod::node_kernel: return "node_kernel";
    case DeviceMethod::tiers: return "hierarchical";
  }
  return "";
}

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

DeviceReducer::~DeviceReducer() {
  try {
    record_choices();
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the choices are lost
  }
}

DeviceReducer::Executions DeviceReducer::enqueue(std::span<const Job> jobs, std::size_t before, bool last) {
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
  std::vector<Use> uses;
  for (const Job& job : jobs) {
    Use use{.job = job, .sites = sites_of(job), .number = static_cast<std::uint32_t>(before + uses.size())};
    if (is_placed(job)) {
      use.residuals = open_residuals(*job.route.keeps, resolve(job, use.sites).resolved.call.residuals);
    }
    uses.push_back(std::move(use));
  }
  Executions executions = make(executor_, backend_, uses);
  if (last) {
    device_.advance(step_);  // all jobs of a run have the same step, since their last kernels are only enqueued now
  }
  link_->end_run(captured);
  for (void* stream : streams) {
    link_->set_caller(stream);
    device_.lead_caller();
  }
  return executions;
}

void DeviceReducer::run(std::span<const Job> jobs) {
  const CurrentDevice current(device_);
  open_own_communicator(jobs.front());
  forget_old_residuals();
  Executions executions;
  if (all_have_frames(jobs)) {
    executions = enqueue(jobs);
  } else {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      executions.push_back(enqueue(jobs.subspan(i, 1), i, i + 1 == jobs.size()).front());
    }
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (const auto& place = jobs[i].route.keeps; place && *place < residuals_.size() && !residuals_[*place].held) {
      drop_residuals(*place);  // this call has added them
    }
    router_->count(jobs[i].route, executions[i]->statistics(), algorithm_text(jobs[i].route.method));
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
  rival.route.method = job.route.rival_method;
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
          .held = placed && *job.route.keeps < residuals_.size() && residuals_[*job.route.keeps].held
                      ? residuals_[*job.route.keeps].sites
                      : exchange::ResidualSites{}};
}

exchange::StreamCall DeviceReducer::resolve(const Job& job, Sites sites) const {
  const Router::Route& route = job.route;
  const bool scatters = route.what.function == Function::nccl_reduce_scatter;
  const bool in_tiers = route.method == DeviceMethod::tiers;
  return exchange::make_stream_call(
      {.collective = scatters ? exchange::Collective::reduce_scatter : exchange::Collective::all_reduce,
       .algorithm = in_tiers ? Algorithm::hierarchical : route.algorithm,
       .codec = route.stage.codec,
       .second_hop = route.stage.second_hop,
       .intra = in_tiers ? route.stage.intra : std::nullopt,
       .dtype = job.reduce.dtype,
       .count = scatters ? job.reduce.count * static_cast<std::uint64_t>(world_) : job.reduce.count,
       .segments = std::vector<std::uint64_t>(static_cast<std::size_t>(world_), job.reduce.count),
       .feedback = sites.feedback,
       .held = {.any = sites.held.any()},
       .native = {.in_nodes = in_tiers}},
      backend_, configuration_.planner.policy().chunk_bytes, in_tiers ? tiers_ : nullptr);
}

// NCCL promises no order among the calls of a group, so small ones of one codec may follow upon each other here, which
// lets them be made together. The order depends on what is the same on every rank. A factor in device memory is copied
// into the type that kernels read.
DeviceReducer::Executions DeviceReducer::make(exchange::StreamExecutor& executor, exchange::StreamBackend& backend,
                                              std::span<const Use> uses) {
  std::vector<std::size_t> order(uses.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) {
    const DeviceReduce& reduce = uses[i].job.reduce;
    const CodecSpec& codec = uses[i].job.route.stage.codec;
    const bool alone = uses[i].job.route.method != DeviceMethod::messages ||
                       reduce.count * element_bytes(reduce.dtype) >= kJoined.below;
    return std::tuple(alone, codec.values, codec.k);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  Executions executions(uses.size());
  auto next = order.begin();
  const auto take = [&](Executions started) {
    for (auto& execution : started) {
      executions[*next++] = std::move(execution);
    }
  };
  exchange::JoinedCalls joined(kJoined);
  std::vector<std::byte*> factors;
  for (const std::size_t i : order) {
    const DeviceReduce& reduce = uses[i].job.reduce;
    const double* factor = nullptr;
    if (reduce.device_factor != nullptr) {
      factors.push_back(backend.acquire(sizeof(double)));
      backend.convert(reduce.device_factor, reduce.dtype, factors.back(), DType::f64, 1, 1.0, nullptr, 1.0, nullptr);
      factor = reinterpret_cast<const double*>(factors.back());
    }
    take(joined.add(executor, call_of(uses[i], factor)));
  }
  take(joined.start(executor));
  executor.finish();
  for (std::byte* factor : factors) {
    backend.release(factor);
  }
  return executions;
}

exchange::StreamExecutor::Call DeviceReducer::call_of(const Use& use, const double* factor) {
  const DeviceReduce& reduce = use.job.reduce;
  const exchange::StreamCall call = resolve(use.job, use.sites);
  return {.schedule = call.resolved.schedule,
          .task = exchange::make_stream_task(call, device_,
                                             {.input = reduce.send,
                                              .output = reduce.receive,
                                              .step = step_,
                                              .reduction = reduce.reduction,
                                              .factor = reduce.factor,
                                              .device_factor = factor,
                                              .bucket = use.number,
                                              .local_residual = use.residuals.local,
                                              .owner_residual = use.residuals.owner,
                                              .in_windows = use.job.route.method == DeviceMethod::node_kernel,
                                              .name = std::string(name_of(use.job.route.what.function)) + " of " +
                                                      std::to_string(call.request.count) + " elements"})};
}

DeviceReducer::Residuals DeviceReducer::open_residuals(std::size_t place, const exchange::ResidualUse& use) {
  residuals_.resize(std::max(residuals_.size(), place + 1));
  make_room(residuals_[place].local, use.local);
  make_room(residuals_[place].owner, use.owned);
  Residuals& residuals = residuals_[place];
  residuals.sites.local = residuals.sites.local || use.keeps.local;
  residuals.sites.owner = residuals.sites.owner || use.keeps.owner;
  residuals.held = use.keeps.any();
  return residuals;
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
