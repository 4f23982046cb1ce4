// Finds which calls have memory for their messages on every rank, and how much their trials take.
#include <algorithm>

#include "drop_in/device_reducer.hpp"
#include "policy/stage.hpp"

namespace gradwire::drop_in {
namespace {

// Returns the uses with factors at `any` address of device memory, which a dry run does not read. A rank may keep the
// factor of a scaled sum there or on its host, and may change that from call to call, so all ranks must have the memory
// for either.
template <class Uses>
Uses with_device_factors(Uses uses, const void* any) {
  for (auto& use : uses) {
    use.job.reduce.device_factor = use.job.reduce.scaled ? any : nullptr;
  }
  return uses;
}

}  // namespace

FrameMemory::Kind DeviceReducer::kind_of(const Router::Route& route, const DeviceReduce& reduce, Sites sites) {
  const policy::Stage& stage = route.stage;
  return {.call = {route.what.function, reduce.dtype, route.what.count},
          .algorithm = route.algorithm,
          .codecs = {stage.codec.values, stage.codec.k, stage.second_hop.values, stage.second_hop.k},
          .keeps = sites.feedback,
          .holds_local = sites.held.local,
          .holds_owner = sites.held.owner,
          .scaled = reduce.scaled,
          .method = route.method};
}

// Returns the residuals that the job's place holds, or will hold where it holds none yet. Nothing is touched in a dry
// run: the step's address stands for any.
DeviceReducer::Residuals DeviceReducer::expected_residuals(const Job& job) const {
  if (!job.route.keeps) {
    return {};
  }
  if (is_placed(job) && *job.route.keeps < residuals_.size() && residuals_[*job.route.keeps].held) {
    return residuals_[*job.route.keeps];
  }
  auto* const any = reinterpret_cast<float*>(step_);
  const exchange::ResidualUse use = resolve(job, {.feedback = true}).resolved.call.residuals;
  return {.local = {any, use.local.first, use.local.count},
          .owner = {any, use.owned.first, use.owned.count},
          .sites = use.keeps};
}

// Enqueues the uses together, as enqueue() does with jobs.
void DeviceReducer::play(exchange::StreamBackend& backend, std::span<const Use> uses) {
  exchange::StreamExecutor executor(backend);
  executor.use_windows(device_.windows());
  make(executor, backend, uses);
}

// A place begins without residuals, later calls add those that it holds, and it may have lost them when a call that was
// routed is made. Where codec = "auto" chooses, an exact call adds them at last.
bool DeviceReducer::all_have_frames(const Router::Route& route, const DeviceReduce& reduce) {
  const Job job{route, reduce};
  const Residuals residuals = expected_residuals(job);
  const FrameMemory::Run run{
      kind_of(route, reduce, {.feedback = route.keeps.has_value() && !route.folds, .held = residuals.sites})};
  if (const auto agreed = frames_.known(run)) {
    return *agreed;
  }
  const exchange::CurrentDevice current(device_);
  std::vector<Use> uses{{.job = job}};
  if (job.route.keeps) {
    uses.push_back({job, {.feedback = !job.route.folds, .held = residuals.sites}, residuals});
    uses.push_back({job, {.feedback = !job.route.folds}, residuals});
    if (trials_) {
      Job exact = job;
      exact.route.stage = policy::exact_stage(job.route.stage);
      uses.push_back({exact, {.held = residuals.sites}, residuals});
    }
  }
  if (reduce.scaled) {
    const std::vector<Use> others = with_device_factors(uses, step_);
    uses.insert(uses.end(), others.begin(), others.end());
  }
  if (trials_) {
    trials_->give_back(configuration_.longest_wait());
  }
  return frames_.ask(
      run,
      [&](exchange::StreamBackend& backend) {
        for (const Use& use : uses) {
          play(backend, {&use, 1});
        }
      },
      [this](bool mine) { return all_have(mine); });
}

// Calls of a group share messages, so that they need more memory than each of them. Where some rank lacks it, they are
// made one by one. While a graph is captured nobody can be asked.
bool DeviceReducer::all_have_frames(std::span<const Job> jobs) {
  if (jobs.size() < 2) {
    return true;  // as its route was decided
  }
  FrameMemory::Run run;
  for (const Job& job : jobs) {
    run.push_back(kind_of(job.route, job.reduce, sites_of(job)));
  }
  const auto agreed = frames_.known(run);
  if (agreed || std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.reduce.captured; })) {
    return agreed.value_or(false);
  }
  std::vector<Use> uses;
  bool scaled = false;
  for (const Job& job : jobs) {
    scaled = scaled || job.reduce.scaled;
    const Sites sites = sites_of(job);
    uses.push_back({job, sites, sites.feedback || sites.held.any() ? expected_residuals(job) : Residuals{}});
  }
  return frames_.ask(
      run,
      [&](exchange::StreamBackend& backend) {
        play(backend, uses);
        if (scaled) {
          play(backend, with_device_factors(uses, step_));
        }
      },
      [this](bool mine) { return all_have(mine); });
}

// A rival keeps no residuals in a trial.
std::uint64_t DeviceReducer::bytes_of_trial(const choice::DeviceGate::Asked& asked) {
  const bool scatters = asked.what.function == Function::nccl_reduce_scatter;
  std::uint64_t most = 0;
  for (const std::uint64_t bytes : asked.sizes) {
    Job rival{.route = router_->rival_of(asked.what, asked.rival), .reduce = {.dtype = asked.what.dtype}};
    rival.route.what.count = bytes / element_bytes(asked.what.dtype);
    rival.reduce.count = rival.route.what.count / (scatters ? static_cast<std::uint64_t>(world_) : 1);
    rival.reduce.send = rival.reduce.receive = step_;
    for (const void* factor : {static_cast<const void*>(nullptr), static_cast<const void*>(step_)}) {
      if (factor != nullptr && rival.route.method == DeviceMethod::node_kernel) {
        continue;  // it makes no scaled sums
      }
      rival.reduce.device_factor = factor;
      const Use use{.job = rival};
      most = std::max(most, frames_.bytes_of([&](exchange::StreamBackend& backend) { play(backend, {&use, 1}); }));
    }
  }
  return most;
}

void DeviceReducer::tell_of_memory(const Router::Route& route) {
  if (rank_ == 0 && !std::exchange(told_of_memory_, true)) {
    lines_.push_back("some rank has no device memory for the messages of " + std::string(name_of(route.what.function)) +
                     " of " + std::to_string(route.what.count) + " elements on a communicator of " +
                     std::to_string(world_) + " ranks: such calls pass; leave more memory, or use smaller buckets");
  }
}

}  // namespace gradwire::drop_in
