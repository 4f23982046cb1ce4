#include "session/host/bucket_calls.hpp"

#include <algorithm>
#include <limits>

namespace gradwire::session {
namespace {

// There is none in the background: native sums of a transport must come in the same order on every rank.
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
  const std::uint64_t bytes = is_chosen(bucket, step) ? step.choices[bucket.id].chunk_bytes : plan.host_chunk_bytes();
  return plan.chunk_bytes ? exchange::ChunkSize::as_asked(bytes) : bytes;
}

}  // namespace

exchange::CallRequest BucketCalls::request(const plan::Plan& plan, const plan::Bucket& bucket,
                                           const StepInfo& step) const {
  const policy::Level level = level_at(bucket, step);
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
          .native = native_of(transport_, plan, bucket, step)};
}

bool BucketCalls::sums_natively(const plan::Plan& plan, const plan::Bucket& bucket, const StepInfo& step) const {
  return exchange::is_native(request(plan, bucket, step), group(plan));
}

}  // namespace gradwire::session
