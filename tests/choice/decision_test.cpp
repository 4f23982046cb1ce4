// Tests the table of calls that are compressed and calls that are passed, row by row.
#include "choice/decision.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace gradwire::choice {
namespace {

constexpr std::uint64_t kFloorElements = (64 << 10) / sizeof(float);

Call large(Function function) {
  return {.function = function, .dtype = DType::f32, .reduction = Reduction::sum, .count = 1 << 20, .world_size = 4};
}

struct Row {
  std::string what;
  std::function<void(Call&, Settings&)> change;
  Reason expected;
};

// Each row changes a large MPI_Allreduce of floats, summed over four ranks, which is compressed.
const std::vector<Row> kRows = {
    {"float sum", [](Call&, Settings&) {}, Reason::none},
    {"average", [](Call& c, Settings&) { c.reduction = Reduction::mean; }, Reason::none},
    {"half", [](Call& c, Settings&) { c.dtype = DType::f16; }, Reason::none},
    {"bfloat16", [](Call& c, Settings&) { c.dtype = DType::bf16; }, Reason::none},
    {"double", [](Call& c, Settings&) { c.dtype = DType::f64; }, Reason::dtype},
    {"double, asked for", [](Call& c, Settings& s) { c.dtype = DType::f64, s.f64 = true; }, Reason::none},
    {"integer or derived type", [](Call& c, Settings&) { c.dtype.reset(); }, Reason::dtype},
    {"a type that is none", [](Call& c, Settings&) { c.dtype = DType{77}; }, Reason::dtype},
    {"max, product, the user's own operation", [](Call& c, Settings&) { c.reduction.reset(); }, Reason::operation},
    {"count 0", [](Call& c, Settings&) { c.count = 0; }, Reason::below_floor},
    {"count 0 without a floor", [](Call& c, Settings& s) { c.count = 0, s.floor_bytes = 0; }, Reason::below_floor},
    {"count 1", [](Call& c, Settings&) { c.count = 1; }, Reason::below_floor},
    {"one below the floor", [](Call& c, Settings&) { c.count = kFloorElements - 1; }, Reason::below_floor},
    {"at the floor", [](Call& c, Settings&) { c.count = kFloorElements; }, Reason::none},
    {"at the floor, in halves", [](Call& c, Settings&) { c.count = kFloorElements, c.dtype = DType::f16; },
     Reason::below_floor},
    {"another floor", [](Call& c, Settings& s) { c.count = 100, s.floor_bytes = 400; }, Reason::none},
    {"more bytes than 64 bits hold", [](Call& c, Settings&) { c.count = ~std::uint64_t{0}; }, Reason::none},
    // Small calls have one reason, whatever else holds: they are decided by the count alone, before anything else is
    // known.
    {"a small double", [](Call& c, Settings&) { c.dtype = DType::f64, c.count = 7840; }, Reason::below_floor},
    {"a large double", [](Call& c, Settings&) { c.dtype = DType::f64, c.count = 8192; }, Reason::dtype},
    {"a small integer", [](Call& c, Settings&) { c.dtype.reset(), c.count = 8191; }, Reason::below_floor},
    {"a larger integer", [](Call& c, Settings&) { c.dtype.reset(), c.count = 8192; }, Reason::dtype},
    {"a small maximum", [](Call& c, Settings&) { c.reduction.reset(), c.count = 9; }, Reason::below_floor},
    {"one rank", [](Call& c, Settings&) { c.world_size = 1; }, Reason::alone},
    {"intercommunicator", [](Call& c, Settings&) { c.intra = false; }, Reason::intercommunicator},
    {"a communicator of unknown making", [](Call& c, Settings&) { c.known = false; }, Reason::unknown},
    {"bad arguments", [](Call& c, Settings&) { c.valid = false; }, Reason::bad_arguments},
    {"a small call on a non-blocking communicator", [](Call& c, Settings&) { c.blocking = false, c.count = 1; },
     Reason::below_floor},
    {"integers on a non-blocking communicator", [](Call& c, Settings&) { c.blocking = false, c.dtype.reset(); },
     Reason::dtype},
    {"a non-blocking communicator of unknown size", [](Call& c, Settings&) { c.blocking = false, c.world_size = 0; },
     Reason::nonblocking},
    {"non-blocking communicator", [](Call& c, Settings&) { c.blocking = false; }, Reason::nonblocking},
    {"inside a group", [](Call& c, Settings&) { c.grouped = true; }, Reason::grouped},
    {"captured", [](Call& c, Settings&) { c.captured = true; }, Reason::captured},
    {"before the agreement", [](Call& c, Settings&) { c.agreed = false; }, Reason::agreeing},
    {"disabled", [](Call&, Settings& s) { s.disabled = true; }, Reason::disabled},
    {"ranks differ", [](Call&, Settings& s) { s.ranks_differ = true; }, Reason::ranks_differ},
    {"several ranks in one process", [](Call&, Settings& s) { s.one_process = true; }, Reason::one_process},
    {"nobody named a codec", [](Call&, Settings& s) { s.observing = true; }, Reason::observing},
    {"a small call then", [](Call& c, Settings& s) { s.observing = true, c.count = 1; }, Reason::below_floor},
    {"policy says exact", [](Call& c, Settings&) { c.policy_exact = true; }, Reason::policy_exact},
    {"no device path: host memory does not mind", [](Call&, Settings& s) { s.device_path = false; }, Reason::none},
};

TEST(CallDecision, RowByRow) {
  for (const Row& row : kRows) {
    Call call = large(Function::mpi_allreduce);
    Settings settings;
    row.change(call, settings);
    const CallDecision decision = decide(call, settings);
    EXPECT_STREQ(text(decision.reason), text(row.expected)) << row.what;
    EXPECT_EQ(decision.compress, row.expected == Reason::none) << row.what;
  }
}

TEST(CallDecision, EveryFunction) {
  const std::vector<std::pair<Function, Reason>> expected = {
      {Function::mpi_allreduce, Reason::none},
      {Function::mpi_reduce_scatter, Reason::none},
      {Function::mpi_reduce_scatter_block, Reason::none},
      {Function::mpi_reduce, Reason::none},
      {Function::mpi_iallreduce, Reason::nonblocking},
      {Function::mpi_ireduce_scatter, Reason::nonblocking},
      {Function::mpi_ireduce_scatter_block, Reason::nonblocking},
      {Function::mpi_allreduce_init, Reason::nonblocking},
      {Function::mpi_reduce_scatter_init, Reason::nonblocking},
      {Function::mpi_reduce_scatter_block_init, Reason::nonblocking},
      {Function::c10d_all_reduce, Reason::none},
      {Function::c10d_reduce_scatter, Reason::none},
      {Function::nccl_all_reduce, Reason::none},
      {Function::nccl_reduce_scatter, Reason::none},
      {Function::nccl_all_gather, Reason::function},
      {Function::nccl_broadcast, Reason::function},
      {Function::nccl_reduce, Reason::function},
      {Function::nccl_send, Reason::function},
      {Function::nccl_recv, Reason::function},
      {Function::nccl_all_to_all, Reason::function},
      {Function::nccl_gather, Reason::function},
      {Function::nccl_scatter, Reason::function},
      {Function::other, Reason::function},
  };
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(Function::other) + 1);
  std::set<std::string_view> names;
  for (const auto& [function, reason] : expected) {
    EXPECT_STREQ(text(decide(large(function), {}).reason), text(reason)) << name_of(function);
    EXPECT_TRUE(names.insert(name_of(function)).second) << name_of(function);
  }
}

TEST(CallDecision, RequestsAreCompressedWhereAllRanksCan) {
  for (const Function function :
       {Function::mpi_iallreduce, Function::mpi_ireduce_scatter, Function::mpi_ireduce_scatter_block}) {
    EXPECT_TRUE(decide(large(function), {.requests = true}).compress) << name_of(function);
  }
  for (const Function function :
       {Function::mpi_allreduce_init, Function::mpi_reduce_scatter_init, Function::mpi_reduce_scatter_block_init}) {
    EXPECT_EQ(decide(large(function), {.requests = true}).reason, Reason::nonblocking) << name_of(function);
  }
}

TEST(CallDecision, DeviceCallsPassWithoutADevicePath) {
  for (const Function function : {Function::nccl_all_reduce, Function::nccl_reduce_scatter}) {
    EXPECT_EQ(decide(large(function), {.device_path = false}).reason, Reason::device_path);
    EXPECT_TRUE(decide(large(function), {.device_path = true}).compress);
    Call doubles = large(function);
    doubles.dtype = DType::f64;
    EXPECT_EQ(decide(doubles, {.f64 = true}).reason, Reason::dtype);
  }
}

// A reason in the arguments comes before one in the configuration, so that the reason given to a user is true of the
// call.
TEST(CallDecision, TheFirstReasonIsGiven) {
  Call call = large(Function::nccl_all_reduce);
  call.count = 1;
  call.policy_exact = true;
  EXPECT_EQ(decide(call, {.device_path = false, .disabled = true}).reason, Reason::below_floor);
  call.count = 1 << 20;
  EXPECT_EQ(decide(call, {.device_path = false, .disabled = true}).reason, Reason::disabled);
  EXPECT_EQ(decide(call, {.device_path = false}).reason, Reason::policy_exact);
  call.valid = false;
  EXPECT_EQ(decide(call, {}).reason, Reason::bad_arguments);
}

TEST(CallDecision, ReasonsHaveTextsOfTheirOwn) {
  std::set<std::string> texts;
  for (std::size_t i = 0; i < kReasons; ++i) {
    EXPECT_TRUE(texts.insert(text(Reason{static_cast<std::uint8_t>(i)})).second) << i;
  }
  EXPECT_STREQ(text(Reason::none), "");
}

TEST(CallDecision, DenseBytesAreThoseOfAPerfectAlgorithm) {
  EXPECT_EQ(dense_bytes(Function::mpi_allreduce, 1000, 4), 6000U);  // 2 x 3/4 of 1000 bytes from each of 4 ranks
  EXPECT_EQ(dense_bytes(Function::mpi_reduce_scatter_block, 1000, 4), 3000U);
  EXPECT_EQ(dense_bytes(Function::mpi_reduce, 1000, 4), 3000U);  // each rank but the root sends its own values or a sum
  EXPECT_EQ(dense_bytes(Function::mpi_allreduce, 1000, 1), 0U);
  EXPECT_EQ(dense_bytes(Function::other, 1000, 4), 0U);
}

}  // namespace
}  // namespace gradwire::choice
