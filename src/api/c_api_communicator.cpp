// gradwire.h: collectives without a session.
#include "api/c_api.hpp"

using gradwire::Algorithm;
using gradwire::CallOptions;
using gradwire::CodecSpec;
using gradwire::ConstView;
using gradwire::View;
using gradwire::api::guard;
using gradwire::api::required;

namespace {

constexpr const char* kStatistics = "gradwire_statistics";

Algorithm algorithm_of(gradwire_algorithm algorithm) {
  switch (algorithm) {
    case GRADWIRE_ALGORITHM_DEFAULT:
    case GRADWIRE_TWO_SHOT: return Algorithm::two_shot;
    case GRADWIRE_ONE_SHOT: return Algorithm::one_shot;
    case GRADWIRE_DENSE: return Algorithm::dense;
    case GRADWIRE_HIERARCHICAL: return Algorithm::hierarchical;
  }
  throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                        "algorithm is " + std::to_string(algorithm) + "; write one of gradwire_algorithm");
}

CallOptions call_options(const gradwire_call_options* given, const char* codec) {
  const gradwire_call_options known = gradwire::api::read_struct(given, "gradwire_call_options");
  CallOptions options;
  options.codec = CodecSpec::parse(known.codec == nullptr ? codec : known.codec);
  if (known.second_hop != nullptr) {
    options.second_hop = CodecSpec::parse(known.second_hop);
  }
  if (known.intra_codec != nullptr) {
    options.intra_codec = CodecSpec::parse(known.intra_codec);
  }
  options.algorithm = algorithm_of(known.algorithm);
  options.reduction = gradwire::api::reduction_of(known.reduction, gradwire::Reduction::sum);
  options.feedback = known.feedback == nullptr ? nullptr : &known.feedback->buffer;
  return options;
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
    const gradwire::DType type = gradwire::api::dtype_of(dtype);
    const gradwire::Statistics sent =
        required(communicator, function, "communicator")
            .communicator.all_reduce(ConstView(input, count, type), View{output, count, type},
                                     call_options(options, "int8"));
    gradwire::api::write_struct(gradwire::api::statistics_of(sent), statistics);
  });
}

gradwire_status gradwire_broadcast(gradwire_communicator* communicator, void* values, uint64_t count,
                                   gradwire_dtype dtype, int root, const gradwire_call_options* options,
                                   gradwire_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    gradwire::api::check_struct_size(statistics, kStatistics);
    const gradwire::Statistics sent = required(communicator, function, "communicator")
                                          .communicator.broadcast(View{values, count, gradwire::api::dtype_of(dtype)},
                                                                  root, call_options(options, "exact"));
    gradwire::api::write_struct(gradwire::api::statistics_of(sent), statistics);
  });
}

gradwire_status gradwire_barrier(gradwire_communicator* communicator) {
  const char* function = __func__;
  return guard([&] { required(communicator, function, "communicator").communicator.barrier(); });
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
