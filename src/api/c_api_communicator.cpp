// gradwire.h: collectives without a session.
#include <limits>
#include <span>

#include "api/c_api.hpp"

using gradwire::ConstView;
using gradwire::DType;
using gradwire::View;
using gradwire::api::call_options_of;
using gradwire::api::communicator_of;
using gradwire::api::dtype_of;
using gradwire::api::guard;
using gradwire::api::required;

namespace {

constexpr const char* kStatistics = "gradwire_statistics";

// The segments of a reduce-scatter or an all-gather: one for each rank, and all of them.
struct Segments {
  std::span<const std::uint64_t> counts;
  std::uint64_t own = 0;
  std::uint64_t all = 0;
};

Segments segments_of(const gradwire::Communicator& communicator, const std::uint64_t* counts, DType dtype,
                     const char* function) {
  required(counts, function, "counts", "one number of elements for each rank");
  Segments segments{.counts = {counts, static_cast<std::size_t>(communicator.world_size())}};
  const std::uint64_t most = std::numeric_limits<std::ptrdiff_t>::max() / gradwire::element_bytes(dtype);
  for (std::size_t rank = 0; rank < segments.counts.size(); ++rank) {
    if (counts[rank] > most - segments.all) {
      throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                            std::string(function) + ": counts[" + std::to_string(rank) + "] is " +
                                std::to_string(counts[rank]) + ", with those before it more than memory holds; give " +
                                "the elements of that rank");
    }
    segments.all += counts[rank];
  }
  segments.own = counts[communicator.rank()];
  return segments;
}

// Calls call(communicator, segments, options) for a collective over one segment a rank.
template <class Call>
gradwire_status over_segments(gradwire_communicator* communicator, const uint64_t* counts, gradwire_dtype dtype,
                              const gradwire_call_options* options, gradwire_statistics* statistics,
                              const char* function, Call call) {
  return guard([&] {
    gradwire::api::check_struct_size(statistics, kStatistics);
    const DType type = dtype_of(dtype, function);
    gradwire::Communicator& all = communicator_of(communicator, function);
    const Segments segments = segments_of(all, counts, type, function);
    const gradwire::Statistics sent = call(all, segments, type, call_options_of(options, function));
    gradwire::api::write_struct(gradwire::api::statistics_of(sent), statistics);
  });
}

}  // namespace

extern "C" {

int gradwire_communicator_rank(const gradwire_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->communicator.rank();
}

int gradwire_communicator_world_size(const gradwire_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->communicator.world_size();
}

gradwire_status gradwire_all_reduce(gradwire_communicator* communicator, const void* input, void* output,
                                    uint64_t count, gradwire_dtype dtype, const gradwire_call_options* options,
                                    gradwire_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    gradwire::api::check_struct_size(statistics, kStatistics);
    const DType type = dtype_of(dtype, function);
    const gradwire::Statistics sent =
        communicator_of(communicator, function)
            .all_reduce(ConstView(input, count, type), View{output, count, type}, call_options_of(options, function));
    gradwire::api::write_struct(gradwire::api::statistics_of(sent), statistics);
  });
}

gradwire_status gradwire_reduce_scatter(gradwire_communicator* communicator, const void* input, void* output,
                                        const uint64_t* counts, gradwire_dtype dtype,
                                        const gradwire_call_options* options, gradwire_statistics* statistics) {
  return over_segments(communicator, counts, dtype, options, statistics, __func__,
                       [&](gradwire::Communicator& all, const Segments& segments, DType type, const auto& call) {
                         return all.reduce_scatter(ConstView(input, segments.all, type),
                                                   View{output, segments.own, type}, segments.counts, call);
                       });
}

gradwire_status gradwire_all_gather(gradwire_communicator* communicator, const void* input, void* output,
                                    const uint64_t* counts, gradwire_dtype dtype, const gradwire_call_options* options,
                                    gradwire_statistics* statistics) {
  return over_segments(communicator, counts, dtype, options, statistics, __func__,
                       [&](gradwire::Communicator& all, const Segments& segments, DType type, const auto& call) {
                         return all.all_gather(ConstView(input, segments.own, type), View{output, segments.all, type},
                                               segments.counts, call);
                       });
}

gradwire_status gradwire_broadcast(gradwire_communicator* communicator, void* values, uint64_t count,
                                   gradwire_dtype dtype, int root, const gradwire_call_options* options,
                                   gradwire_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    gradwire::api::check_struct_size(statistics, kStatistics);
    const gradwire::Statistics sent =
        communicator_of(communicator, function)
            .broadcast(View{values, count, dtype_of(dtype, function)}, root, call_options_of(options, function));
    gradwire::api::write_struct(gradwire::api::statistics_of(sent), statistics);
  });
}

gradwire_status gradwire_communicator_tiers(const gradwire_communicator* communicator, char* buffer, uint64_t size,
                                            uint64_t* length) {
  const char* function = __func__;
  return guard([&] {
    gradwire::api::write_text(communicator_of(communicator, function).tiers(), buffer, size, length, function);
  });
}

gradwire_status gradwire_barrier(gradwire_communicator* communicator) {
  const char* function = __func__;
  return guard([&] { communicator_of(communicator, function).barrier(); });
}

void gradwire_communicator_destroy(gradwire_communicator* communicator) { delete communicator; }

gradwire_status gradwire_feedback_create(uint64_t count, gradwire_feedback** feedback) {
  const char* function = __func__;
  return guard([&] {
    gradwire_feedback*& result = required(feedback, function, "feedback");
    result = nullptr;
    result = new gradwire_feedback{gradwire::FeedbackBuffer(count)};
  });
}

void gradwire_feedback_destroy(gradwire_feedback* feedback) { delete feedback; }

}  // extern "C"
