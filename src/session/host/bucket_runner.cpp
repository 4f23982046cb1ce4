#include "session/host/bucket_runner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/cores.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/sizes.hpp"
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "plan/hash.hpp"
#include "policy/sync.hpp"
#include "session/agreements.hpp"
#include "session/host/bucket_memory.hpp"
#include "transport/shares_process.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

constexpr int kLanesBehindOthers = 2;  // at least, of the background, where other buckets share the link

// Calls body(first, count) for each tile of `count` elements.
template <typename Body>
void for_each_tile(std::uint64_t count, Body&& body) {
  for (std::uint64_t first = 0; first < count; first += kTileElements) {
    body(first, static_cast<std::uint32_t>(std::min(kTileElements, count - first)));
  }
}

double value_at(const void* values, codec::Working working, std::uint32_t index) {
  return working == codec::Working::f64 ? static_cast<const double*>(values)[index]
                                        : static_cast<double>(static_cast<const float*>(values)[index]);
}

bool is_chosen(const plan::Bucket& bucket, const StepInfo& step) {
  return !bucket.levels.empty() && !step.choices.empty();
}

policy::Level level_at(const plan::Bucket& bucket, const StepInfo& step) {
  if (step.flush || step.plain) {
    return {bucket.algorithm, policy::exact_stage(policy::stage_at(bucket.stages, step.step))};
  }
  if (is_chosen(bucket, step)) {
    return bucket.levels[step.choices[bucket.id].level];
  }
  return {bucket.algorithm, policy::stage_at(bucket.stages, step.step)};
}

// None in the background: a native sum must come in the same order among all of a transport on every rank.
exchange::NativeSum native_of(const Transport& transport, const plan::Plan& plan, const plan::Bucket& bucket,
                              const StepInfo& step) {
  if (plan.deterministic || step.background || (is_chosen(bucket, step) && !step.choices[bucket.id].native)) {
    return {};
  }
  exchange::NativeSum native = exchange::native_sum(
      transport, is_chosen(bucket, step) ? std::numeric_limits<std::uint64_t>::max() : exchange::kNativeBelowBytes);
  native.asks = step.in_call != StepInfo::InCall::no;
  return native;
}

exchange::ChunkSize chunk_bytes(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) {
  return {is_chosen(bucket, step) ? step.choices[bucket.id].chunk_bytes : plan.host_chunk_bytes(),
          plan.chunk_bytes.has_value()};
}

// Whether results are close enough to the exact mean for their norm to be its: fewer bits, and residuals that a codec
// with so few keeps, would count as noise.
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
          .background = true,
          .crowded = share_cores(ranks_here(transport.nodes(), transport.rank(), transport.world_size())),
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
      executor_(*transport_, {.timeout = options.timeout,
                              .checksum = info().checksum,
                              .crowded = info().crowded,
                              .source = info().source,
                              .epoch = static_cast<std::uint8_t>(epoch)}),
      background_(*transport_, {.timeout = options.timeout,
                                .checksum = info().checksum,
                                .channel = 1,
                                .crowded = info().crowded,
                                .source = info().source,
                                .epoch = static_cast<std::uint8_t>(epoch)}),
      peers_(*transport_, options.timeout),
      small_(*transport_, options.reduction, options.timeout, {.crowded = info().crowded, .source = info().source}) {}

std::vector<std::string> BucketRunner::agree(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                             const std::string& parts, const std::string& beside) {
  {
    const std::lock_guard lock(statistics_mutex_);
    statistics_.resize(plan.groups.size());
  }
  executor_.set_tiers(plan.tiers);
  background_.set_tiers(plan.tiers);
  const bool behind_others = std::any_of(plan.buckets.begin(), plan.buckets.end(),
                                         [](const plan::Bucket& bucket) { return policy::is_step(bucket.sync); });
  executor_.set_window({.memory_bytes = plan.in_flight_bytes});
  background_.set_window({.least_lanes = behind_others ? kLanesBehindOthers : exchange::kLeastLanes,
                          .memory_bytes = plan.in_flight_bytes});
  if (plan.link) {
    know_link(exchange::given_cluster(*plan.link, *plan.tiers));
  }
  return agree_on_plan(peers_, agreement_text(plan, weighted, step, !residuals_.empty(), parts), beside);
}

observe::PeerWaits* BucketRunner::watch_peers() {
  observe::PeerWaits* waits = &peer_waits_.emplace(info().rank, info().world_size);
  executor_.watch_peers(waits);
  small_.watch_peers(waits);
  return waits;
}

void BucketRunner::know_link(const exchange::Cluster& cluster) {
  const std::uint64_t bytes = exchange::window_of(cluster);
  executor_.set_known_window(bytes);
  background_.set_known_window(bytes);
}

exchange::Request BucketRunner::request(const plan::Plan& plan, const plan::Bucket& bucket, const policy::Level& level,
                                        const StepInfo& step) const {
  return {.algorithm = level.algorithm,
          .codec = level.stage.codec,
          .second_hop = level.stage.second_hop,
          .intra = level.stage.intra,
          .dtype = bucket.dtype,
          .count = bucket.count,
          .weighted = step.weighted,
          .feedback = level.stage.error_feedback && !step.plain,
          .preconditioned = bucket.preconditioned && !step.plain,
          .chunk_bytes = chunk_bytes(plan, bucket, step),
          .native = native_of(*transport_, plan, bucket, step)};
}

exchange::RankGroup BucketRunner::group(const plan::Plan& plan) const {
  return {transport_->rank(), transport_->world_size(), plan.tiers};
}

bool BucketRunner::sums_natively(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) const {
  return exchange::is_native(request(plan, bucket, level_at(bucket, step), step), group(plan));
}

void BucketRunner::start(const plan::Plan& plan, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                         const StepInfo& step) {
  const policy::Level level = level_at(bucket, step);
  if (step.again) {
    for (const plan::Bucket::Part& part : bucket.parts) {
      residuals_.copy_before_changes(static_cast<std::uint32_t>(part.tensor));
    }
  }
  auto residuals = std::make_unique<exchange::BucketResiduals>(residuals_, bucket.parts, bucket.decay);
  exchange::Request asked = request(plan, bucket, level, step);
  if (!step.plain) {
    asked.held = residuals->held();
  }
  auto [call, schedule] = exchange::resolve(asked, group(plan));
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
  Flight flight{bucket.id,
                bucket.group,
                step.background,
                nullptr,
                nullptr,
                {},
                std::move(of_bucket.results),
                std::move(residuals),
                call.residuals};
  if (step.sample && call.codecs.node.lossy()) {
    flight.sample = sample_quality(task);
  }
  if (observe::on() && !step.plain) [[unlikely]] {
    look_at_health(plan, task, flight.sample);
  }
  look_at_small_values(plan, bucket, task);
  if (step.norms && keeps_norms(level.stage)) {
    flight.norms = choice::GradientNorms{.local = squared_norm(task.tensors)};
  }
  if (options_.measure_error && (call.codecs.first.lossy() || call.codecs.node.lossy())) {
    start_exact(flight, plan, bucket, task);
  }
  exchange::HostExecutor& executor = step.background ? background_ : executor_;
  if (!step.background && transport_->world_size() > 1) {
    foreground_.note(true, true);
  }
  flight.execution = executor.start(std::move(schedule), std::move(task));
  flights_.push_back(std::move(flight));
}

bool BucketRunner::ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const {
  if (plan.buckets.empty() || plan.has_modes() || options_.measure_error) {
    return false;
  }
  const plan::Bucket& last = plan.buckets.back();
  return exchange::dense_in_call(*transport_, last.dtype, last.count, *plan.tiers) &&
         sums_natively(plan, last, {.choices = choices, .in_call = StepInfo::InCall::waits});
}

void BucketRunner::start_exact(Flight& flight, const plan::Plan& plan, const plan::Bucket& bucket,
                               const exchange::Task& task) {
  const std::size_t element = element_bytes(bucket.dtype);
  auto [call, schedule] = exchange::resolve({.algorithm = Algorithm::dense,
                                             .dtype = bucket.dtype,
                                             .count = bucket.count,
                                             .weighted = task.call.weighted,
                                             .chunk_bytes = plan.host_chunk_bytes()},
                                            {transport_->rank(), transport_->world_size()});
  flight.exact_values.resize(bucket.count * element);
  codec::TensorList copy(bucket.dtype, call.codecs.first.working());
  copy.append(flight.exact_values.data(), flight.exact_values.data(), bucket.count);
  std::vector<std::byte> scratch(kTileElements * element);
  for_each_tile(bucket.count, [&](std::uint64_t first, std::uint32_t count) {
    copy.store_verbatim(first, count, task.tensors.load_verbatim(first, count, scratch.data()));
  });
  exchange::Task exact_task{.tensors = std::move(copy),
                            .call = std::move(call),
                            .reduction = task.reduction,
                            .weight = task.weight,
                            .bucket = task.bucket,
                            .step = task.step,
                            .residuals = nullptr,
                            .name = task.name + ", exact copy"};
  exchange::HostExecutor& executor = flight.background ? background_ : executor_;
  flight.exact = executor.start(std::move(schedule), std::move(exact_task));
}

bool BucketRunner::advance_foreground(std::chrono::microseconds wait) {
  const bool moved = executor_.advance(wait);
  foreground_.note(executor_.sending(), moved);
  return moved;
}

// What is on a link cannot be called back, so the background has no more lanes than its link takes, and posts none
// while the foreground has messages to send: they would share the link. It never waits for ever: a peer may take those
// messages only when it has what it waits for in the background.
void BucketRunner::advance_executors(std::chrono::microseconds wait) {
  const auto now = std::chrono::steady_clock::now();
  if (executor_.idle()) {
    foreground_.note(false, false);
  }
  if (background_.idle()) {
    moved_ = now;
    if (!executor_.idle()) {
      advance_foreground(wait);
    }
    return;
  }
  if (!executor_.idle() && advance_foreground(std::chrono::microseconds(0))) {
    moved_ = now;
    return;
  }
  if (!executor_.sending()) {
    moved_ = now;
  } else if (now - moved_ < transport::kHoldsBack) {
    if (advance_foreground(wait)) {
      moved_ = now;
    }
    return;
  }
  background_.advance(wait);
}

std::vector<BucketRunner::Ended> BucketRunner::advance(std::chrono::microseconds wait) {
  advance_executors(wait);
  std::vector<Ended> ended;
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    if (!flight->execution->done() || (flight->exact && !flight->exact->done())) {
      ++flight;
      continue;
    }
    if (flight->residuals) {
      flight->residuals->end(flight->use);
    }
    collect(*flight);
    if (flight->norms) {
      flight->norms->reduced = squared_norm(flight->results);
    }
    ended.push_back(
        {flight->bucket, flight->execution->nonfinite(), flight->background, flight->sample, flight->norms});
    flight = flights_.erase(flight);
  }
  return ended;
}

void BucketRunner::collect(Flight& flight) {
  Statistics statistics = flight.execution->statistics();
  if (flight.exact) {
    const codec::Working working = flight.results.working();
    codec::TensorList exact(flight.results.dtype(), working);
    exact.append(flight.exact_values.data(), nullptr, flight.results.count());
    std::vector<double> scratch(2 * kTileElements);
    statistics.squared_error = 0;
    statistics.squared_norm = 0;
    for_each_tile(flight.results.count(), [&](std::uint64_t first, std::uint32_t count) {
      const void* wanted = exact.load(first, count, scratch.data());
      const void* got = flight.results.load(first, count, scratch.data() + kTileElements);
      for (std::uint32_t i = 0; i < count; ++i) {
        const double value = value_at(wanted, working, i);
        const double error = value_at(got, working, i) - value;
        statistics.squared_error += error * error;
        statistics.squared_norm += value * value;
      }
    });
  }
  const std::lock_guard lock(statistics_mutex_);
  statistics_[flight.group].add(statistics);
}

void BucketRunner::broadcast(std::span<const View> values, int root) {
  agree_on_broadcast(peers_, values, root);
  for (const View& value : values) {
    auto [call, schedule] = exchange::resolve({.function = exchange::Function::broadcast,
                                               .codec = CodecSpec::exact(),
                                               .dtype = value.dtype,
                                               .count = value.count,
                                               .root = root},
                                              {transport_->rank(), transport_->world_size()});
    codec::TensorList tensors(value.dtype, call.codecs.first.working());
    tensors.append(value.data, value.data, value.count);
    const auto execution = executor_.start(
        std::move(schedule), {.tensors = std::move(tensors), .call = std::move(call), .name = "a broadcast"});
    executor_.wait(*execution);
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

std::vector<SavedState::Residual> BucketRunner::save_residuals(const plan::Plan& /*plan*/) {
  std::vector<SavedState::Residual> saved;
  for (const auto& [key, ranges] : residuals_.entries()) {
    for (const exchange::ResidualStore::Range& range : ranges) {
      saved.push_back({key, range});
    }
    if (ranges.empty()) {
      saved.push_back({key, {}});  // a mark that counts: see BucketResiduals::held
    }
  }
  return saved;
}

std::vector<Statistics> BucketRunner::statistics() const {
  const std::lock_guard lock(statistics_mutex_);
  return statistics_;
}

Statistics BucketRunner::totals() const {
  const std::lock_guard lock(statistics_mutex_);
  Statistics totals = before_reset_;
  for (const Statistics& group : statistics_) {
    totals.add(group);
  }
  return totals;
}

void BucketRunner::reset_statistics() {
  const std::lock_guard lock(statistics_mutex_);
  for (Statistics& group : statistics_) {
    before_reset_.add(std::exchange(group, {}));
  }
}

}  // namespace gradwire::session
