#include "session/host/bucket_runner.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/processor_cores.hpp"
#include "base/units.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/sizes.hpp"
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "plan/hash.hpp"
#include "plan/memory_use.hpp"
#include "session/host/bucket_memory.hpp"
#include "session/host/gradient_samples.hpp"
#include "session/runner/agreements.hpp"
#include "transport/sealed_transport.hpp"
#include "transport/shares_process.hpp"

namespace gradwire::session {
namespace {

// Whether results are close enough to the exact mean for the norm of the results to stand for the norm of the mean.
// With fewer bits, the errors and the residuals of such a codec would count as noise.
bool keeps_norms(const policy::Stage& stage) {
  constexpr double kLeastBits = 8;
  const auto close = [](const CodecSpec& codec) {
    return codec.k == 0 && exchange::bits_per_element(codec) >= kLeastBits;
  };
  return close(stage.codec) && close(stage.second_hop) && (!stage.intra || close(*stage.intra));
}

RunnerInfo info_of(const Transport& transport, const SessionOptions& options) {
  const TransportCapabilities capabilities = transport.capabilities();
  return {.rank = transport.rank(),
          .world_size = transport.world_size(),
          .transport = transport.name() + (capabilities.emulation.empty() ? "" : ", " + capabilities.emulation),
          .checksum = options.checksum.value_or(capabilities.checksum_by_default),
          .nodes = transport.nodes(),
          .key_check = transport::key_check_of(transport),
          .background = true,
          .crowded = share_cores(ranks_on_node(transport.nodes(), transport.rank(), transport.world_size())),
          .shares_process = transport::shares_process(transport),
          .source = observe::add_source({.kind = observe::Source::Kind::session,
                                         .rank = transport.rank(),
                                         .world_size = transport.world_size(),
                                         .shares_process = transport::shares_process(transport)})};
}

}  // namespace

BucketRunner::BucketRunner(std::shared_ptr<Transport> transport, const SessionOptions& options, std::uint32_t epoch)
    : Runner(info_of(*transport, options)),
      transport_(std::move(transport)),
      options_(options),
      executors_(*transport_, options_, info(), epoch),
      peers_(*transport_, options.timeout),
      calls_(*transport_),
      small_(*transport_, options_, info(), executors_, residuals_, statistics_),
      probes_(*transport_, options_, info(), *this, peers_, executors_, residuals_, statistics_) {}

std::vector<std::string> BucketRunner::agree(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                             const std::string& parts, const std::string& beside) {
  residuals_.store().set_form(plan.residual_form(info().rank));
  for (const auto& [place, bytes] : plan::disk_room_of(plan, info().rank)) {
    residuals_.store().reserve(place, bytes);
  }
  const std::size_t mine = level_with_memory(plan);
  statistics_.resize(plan.groups.size());
  executors_.set_plan(plan);
  if (plan.link) {
    executors_.know_link(exchange::given_cluster(*plan.link, *plan.tiers));
  }
  std::vector<std::string> said =
      agree_on_plan(peers_,
                    agreement_text(plan, weighted, step, !residuals_.store().empty(), parts) +
                        (info().key_check.empty() ? "" : "check value of the key: " + info().key_check + '\n'),
                    std::to_string(mine) + '\n' + beside);
  most_level_ = plan.most_level;
  for (std::string& text : said) {
    const std::size_t end = text.find('\n');
    most_level_ = std::min<std::size_t>(most_level_, std::stoull(text.substr(0, end)));
    text.erase(0, end + 1);
  }
  if (const std::string without = plan::codecs_above(plan, most_level_); info().rank == 0 && !without.empty()) {
    log(LogLevel::warning, "codec = \"auto\" goes without " + without +
                               ": some rank has no host memory for the residuals (docs/explanation/memory.md); raise "
                               "limit in [memory] of the policy, or name smaller codecs first in allow");
  }
  return said;
}

std::size_t BucketRunner::level_with_memory(const plan::Plan& plan) const {
  const std::uint64_t held = residuals_.store().resident_bytes();
  const auto bytes = [held](const plan::MemoryUse& use) {
    return use.frames + use.sealed + use.replicas + use.residuals() - std::min(held, use.residuals());
  };
  const std::size_t level = plan::level_that_fits(plan, info().rank, [&](const plan::MemoryUse& use) {
                              return memory::page_pool().has_room(bytes(use));
                            }).value_or(plan.most_level);
  const plan::MemoryUse use = memory_of(plan, info().rank, level);
  memory::page_pool().require(
      bytes(use), use.replicas == 0 ? std::string("steps of this plan need, for residuals and frames,")
                                    : "steps of this plan need, for residuals, frames and " +
                                          format_bytes(use.replicas) + " of their copies ([elastic] replicate),");
  return level;
}

observe::PeerWaits* BucketRunner::watch_peers() {
  observe::PeerWaits* waits = &peer_waits_.emplace(info().rank, info().world_size);
  executors_.steps().watch_peers(waits);
  small_.sums().watch_peers(waits);
  return waits;
}

void BucketRunner::start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                         const StepInfo& step) {
  if (step.again) {
    for (const plan::Bucket::Part& part : bucket.parts) {
      residuals_.store().copy_before_changes(static_cast<std::uint32_t>(part.tensor));
    }
  }
  auto residuals =
      std::make_unique<exchange::BucketResiduals>(residuals_.store(), bucket.parts, bucket.decay, step.step);
  exchange::CallRequest asked = calls_.request(plan, bucket, step);
  if (!step.plain) {
    asked.held = residuals->held();
  }
  auto [call, schedule] = exchange::resolve(asked, calls_.group(plan));
  if (call.residuals.any) {
    residuals->begin(call.residuals);
  } else {
    residuals.reset();
  }
  BucketMemory of_bucket(bucket, memory, call);
  exchange::Task task{.tensors = std::move(of_bucket.tensors),
                      .call = call,
                      .reduction = options_.reduction,
                      .weight = step.weight,
                      .bucket = bucket.id,
                      .step = step.step,
                      .residuals = residuals.get(),
                      .preconditioner = std::move(of_bucket.preconditioner),
                      .waits = step.in_call == StepInfo::InCall::waits,
                      .name = "bucket " + std::to_string(bucket.id) + " (" + plan.groups[bucket.group].name +
                              ") of step " + std::to_string(step.step)};
  BucketFlight flight(bucket, step.background, std::move(of_bucket.results), std::move(residuals), call.residuals);
  look(flight, plan, bucket, step, task);
  if (!step.background && transport_->world_size() > 1) {
    executors_.note_start();
  }
  flight.start(executors_.of(step.background), std::move(schedule), std::move(task));
  flights_.push_back(std::move(flight));
}

void BucketRunner::look(BucketFlight& flight, const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step,
                        const exchange::Task& task) {
  const exchange::ResolvedCall& call = task.call;
  if (step.sample && call.codecs.node.lossy()) {
    flight.set_sample(sample_quality(task));
  }
  if (observe::on() && !step.plain && health_.due(plan, bucket.id)) [[unlikely]] {
    health_.look(plan, task, flight.sample(),
                 {.residual_bytes = residuals_.store().bytes(), .frame_bytes = executors_.peak_frame_bytes()});
  }
  if (info().rank == 0) {
    small_values_.look(plan, bucket, task);
  }
  if (step.norms && keeps_norms(level_at(bucket, step).stage)) {
    flight.set_norms(squared_norm(task.tensors));
  }
  if (options_.measure_error && (call.codecs.first.lossy() || call.codecs.node.lossy())) {
    flight.start_exact(executors_.of(step.background), plan, task, {transport_->rank(), transport_->world_size()});
  }
}

std::vector<BucketRunner::Ended> BucketRunner::advance(std::chrono::microseconds wait) {
  executors_.advance(wait);
  std::vector<Ended> ended;
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    if (!flight->done()) {
      ++flight;
      continue;
    }
    Statistics statistics;
    ended.push_back(flight->end(statistics));
    statistics_.add(flight->group(), statistics);
    flight = flights_.erase(flight);
  }
  return ended;
}

void BucketRunner::broadcast(std::span<const View> values, int root, bool packed) {
  agree_on_broadcast(peers_, values, root, packed);
  for (const View& value : values) {
    auto [call, schedule] = exchange::resolve({.collective = exchange::Collective::broadcast,
                                               .codec = packed ? CodecSpec(codec::kPackedId) : CodecSpec::exact(),
                                               .dtype = value.dtype,
                                               .count = value.count,
                                               .root = root},
                                              {transport_->rank(), transport_->world_size()});
    codec::TensorList tensors(value.dtype, call.codecs.first.working());
    tensors.append(value.data, value.data, value.count);
    const auto execution = executors_.steps().start(
        std::move(schedule), {.tensors = std::move(tensors), .call = std::move(call), .name = "a broadcast"});
    executors_.steps().wait(*execution);
  }
}

void BucketRunner::compare(std::span<const View> values, std::uint64_t step) {
  std::uint64_t hash = 0;
  for (const View& value : values) {
    hash = plan::hash_of(value.data, value.count * element_bytes(value.dtype), hash);
  }
  agree_on_results(peers_, hash, step);
}

std::vector<std::uint64_t> BucketRunner::hashes(std::span<const View> values) {
  std::vector<std::uint64_t> hashes;
  for (const View& value : values) {
    hashes.push_back(plan::hash_of(value.data, value.count * element_bytes(value.dtype), 0));
  }
  return hashes;
}

std::vector<int> BucketRunner::nonfinite_ranks(std::span<const TensorMemory> memory, double scale, std::uint64_t step) {
  const bool finite = std::all_of(memory.begin(), memory.end(), [](const TensorMemory& tensor) {
    return tensor.zero || codec::all_finite(tensor.gradient.dtype, tensor.gradient.data, tensor.gradient.count);
  });
  return agree_on_nonfinite(peers_, !finite, scale, step);
}

}  // namespace gradwire::session
