// Tests the reports of a session through the C API, and what ranks agree on besides steps.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "c_api_support.hpp"
#include "gradwire/mpi.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CReport : public ::testing::Test {
 protected:
  void make(const std::string& policy_text) {
    gradwire_policy* policy = nullptr;
    ASSERT_OK(gradwire_policy_parse(policy_text.c_str(), nullptr, &policy));
    ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, policy, nullptr, &session));
    gradwire_policy_destroy(policy);
    ASSERT_OK(gradwire_session_add(session, "weights", gradient.data(), gradient.size(), GRADWIRE_F32, nullptr));
  }
  void step() const {
    ASSERT_OK(gradwire_session_ready(session, 0));
    ASSERT_OK(gradwire_session_finish(session, nullptr));
  }
  void TearDown() override { gradwire_session_destroy(session); }

  std::vector<float> gradient = std::vector<float>(50000, 0.7F);
  gradwire_session* session = nullptr;
};

using Text = std::function<gradwire_status(char*, std::uint64_t, std::uint64_t*)>;

/// Returns the text, after asking for its length.
std::string read(const Text& text) {
  std::uint64_t length = 0;
  EXPECT_OK(text(nullptr, 0, &length));
  std::string result(length, '?');
  EXPECT_OK(text(result.data(), length + 1, nullptr));
  return result;
}

TEST_F(CReport, TextsGoToTheCallersBuffer) {
  make("");
  step();
  const std::vector<std::pair<std::string, Text>> texts{
      {"explain", [&](auto... to) { return gradwire_session_explain(session, to...); }},
      {"fingerprint", [&](auto... to) { return gradwire_session_fingerprint(session, to...); }},
      {"statistics_json", [&](auto... to) { return gradwire_session_statistics_json(session, to...); }},
      {"statistics_text", [&](auto... to) { return gradwire_session_statistics_text(session, to...); }}};
  for (const auto& [function, text] : texts) {
    const std::string name = "gradwire_session_" + function + ": ";
    std::uint64_t length = 0;
    ASSERT_OK(text(nullptr, 0, &length)) << name;
    ASSERT_GT(length, 15U) << name;
    std::string buffer(length + 3, '?');
    ASSERT_OK(text(buffer.data(), length + 1, nullptr)) << name;
    EXPECT_EQ(buffer.find('\0'), length) << name << "the text ends in a zero";
    EXPECT_EQ(buffer.substr(length + 1), "??") << name << "more than its size was written";

    std::string small(length + 1, '?');
    std::uint64_t needed = 0;
    expect_invalid(text(small.data(), length, &needed), name + "size is " + std::to_string(length) +
                                                            ", the text and its zero take " +
                                                            std::to_string(length + 1) + "; give a buffer of that");
    EXPECT_EQ(needed, length) << name;
    EXPECT_EQ(small.substr(0, 2), std::string("\0?", 2)) << name;
    expect_invalid(text(small.data(), 0, nullptr), name + "size is 0");
    EXPECT_EQ(small[0], '\0');
    expect_invalid(text(nullptr, 5, &needed), name + "buffer is NULL; give its address, or size 0");
    expect_invalid(text(nullptr, 0, nullptr), name + "length is NULL; give where to write it, or a buffer");
  }
  char byte = 0;
  expect_invalid(gradwire_session_note(nullptr, "loss", 1), "gradwire_session_note: session is NULL");
  expect_invalid(gradwire_session_explain(nullptr, &byte, 1, nullptr), "gradwire_session_explain: session is NULL");
  expect_invalid(gradwire_session_fingerprint(nullptr, &byte, 1, nullptr), "fingerprint: session is NULL");
  expect_invalid(gradwire_session_statistics_json(nullptr, &byte, 1, nullptr), "statistics_json: session is NULL");
  expect_invalid(gradwire_session_statistics_text(nullptr, &byte, 1, nullptr), "statistics_text: session is NULL");
}

TEST_F(CReport, ExplainSaysWhatTensorsResolvedTo) {
  make("[[rule]]\nmatch = \"wei*\"\ncodec = \"int4\"\n");
  const Text explain = [&](auto... to) { return gradwire_session_explain(session, to...); };
  const Text fingerprint = [&](auto... to) { return gradwire_session_fingerprint(session, to...); };
  EXPECT_THAT(read(explain), AllOf(HasSubstr("weights"), HasSubstr("int4"), HasSubstr("wei*")));
  std::string mine = read(fingerprint);
  EXPECT_EQ(mine.size(), 16U);
  EXPECT_EQ(mine.find_first_not_of("0123456789abcdef"), std::string::npos) << mine;
  std::string first = mine;
  MPI_Bcast(first.data(), 16, MPI_CHAR, 0, MPI_COMM_WORLD);
  EXPECT_EQ(mine, first);
  expect_invalid(gradwire_session_add(session, "late", gradient.data(), 1, GRADWIRE_F32, nullptr),
                 "\"late\" comes after the plan was made");
}

TEST_F(CReport, StatisticsAreWholeInTexts) {
  make("[defaults]\ncodec = \"int4\"\n");
  step();
  step();
  const std::string json = read([&](auto... to) { return gradwire_session_statistics_json(session, to...); });
  EXPECT_THAT(json, AllOf(HasSubstr("\"steps\": 2,"), HasSubstr("\"rank\": " + std::to_string(world_rank()) + ","),
                          HasSubstr("\"codec\": \"int4\"")));
  const std::string text = read([&](auto... to) { return gradwire_session_statistics_text(session, to...); });
  EXPECT_THAT(text, HasSubstr("rank " + std::to_string(world_rank()) + " of " + std::to_string(world_size())));
  EXPECT_THAT(text, HasSubstr("2 steps"));
  ASSERT_OK(gradwire_session_note(session, "loss", 0.5));
  expect_invalid(gradwire_session_note(session, nullptr, 0.5), "gradwire_session_note: name is NULL");
  ASSERT_OK(gradwire_session_reset_statistics(session));
  auto statistics = sized<gradwire_statistics>();
  ASSERT_OK(gradwire_session_statistics(session, &statistics));
  EXPECT_EQ(statistics.calls, 0U);
  EXPECT_EQ(statistics.bytes_in, 0U);
  expect_invalid(gradwire_session_reset_statistics(nullptr), "gradwire_session_reset_statistics: session is NULL");
  step();
  ASSERT_OK(gradwire_session_statistics(session, &statistics));
  EXPECT_EQ(statistics.bytes_in, 4 * gradient.size());
}

TEST_F(CReport, StepsAndResidualsAreNumbers) {
  make("[defaults]\ncodec = \"int4\"\n");
  std::uint64_t steps = 9;
  std::uint64_t bytes = 9;
  ASSERT_OK(gradwire_session_step(session, &steps));
  EXPECT_EQ(steps, 0U);
  ASSERT_OK(gradwire_session_residual_bytes(session, &bytes));
  EXPECT_EQ(bytes, 0U);
  step();
  step();
  ASSERT_OK(gradwire_session_step(session, &steps));
  EXPECT_EQ(steps, 2U);
  ASSERT_OK(gradwire_session_residual_bytes(session, &bytes));
  EXPECT_GE(bytes, world_size() == 1 ? 0 : 4 * gradient.size()) << "int4 has error feedback";
  ASSERT_OK(gradwire_session_flush(session));
  step();
  ASSERT_OK(gradwire_session_residual_bytes(session, &bytes));
  EXPECT_EQ(bytes, 0U);
  expect_invalid(gradwire_session_step(nullptr, &steps), "gradwire_session_step: session is NULL");
  expect_invalid(gradwire_session_step(session, nullptr), "gradwire_session_step: step is NULL; give where");
  expect_invalid(gradwire_session_residual_bytes(nullptr, &bytes), "residual_bytes: session is NULL");
  expect_invalid(gradwire_session_residual_bytes(session, nullptr), "residual_bytes: bytes is NULL; give where");
}

TEST_F(CReport, ReserveFindsADifferenceBeforeTheFirstStep) {
  make(world_rank() == 0 && world_size() > 1 ? "[defaults]\ncodec = \"int8\"" : "[defaults]\ncodec = \"bf16\"");
  const gradwire_status status = gradwire_session_reserve(session);
  if (world_size() == 1) {
    EXPECT_OK(status);
  } else {
    // The second rank that checks hears about the difference from the first.
    EXPECT_TRUE(status == GRADWIRE_MISMATCH || status == GRADWIRE_ABORTED) << status;
    EXPECT_THAT(gradwire_last_error(), HasSubstr("policy of tensor 0 \"weights\": rank "));
  }
  expect_invalid(gradwire_session_reserve(nullptr), "gradwire_session_reserve: session is NULL");
}

TEST_F(CReport, ReserveLetsStepsFollow) {
  make("");
  ASSERT_OK(gradwire_session_reserve(session));
  step();
  EXPECT_NEAR(gradient[0], 0.7F, 0.01F);
}

TEST_F(CReport, LinksAreMeasured) {
  make("");
  auto link = sized<gradwire_link_estimate>();
  ASSERT_OK(gradwire_session_link(session, &link));
  EXPECT_EQ(link.ranks_per_node, 1U) << "there are no tiers on one machine";
  EXPECT_EQ(std::isinf(link.inter_bytes_per_second), world_size() == 1) << link.inter_bytes_per_second;
  EXPECT_GT(link.inter_bytes_per_second, 0);
  EXPECT_EQ(link.inter_latency_seconds > 0, world_size() > 1) << link.inter_latency_seconds;
  EXPECT_EQ(link.intra_bytes_per_second, 0);
  EXPECT_GE(link.measured_in_seconds, 0);
  const std::string name = "gradwire_session_link: ";
  expect_invalid(gradwire_session_link(nullptr, &link), name + "session is NULL");
  expect_invalid(gradwire_session_link(session, nullptr), name + "link is NULL; give the address of one");
  link.struct_size = 0;
  expect_invalid(gradwire_session_link(session, &link), "gradwire_link_estimate: struct_size is 0");
}

TEST_F(CReport, BatchAdviceIsThatOfThePolicy) {
  make("[batch]\ntarget_exposed = \"10%\"\nmin_accumulation = 3\nscaling = \"linear\"\n");
  auto advice = sized<gradwire_batch_advice>();
  ASSERT_OK(gradwire_session_batch_advice(session, &advice));
  EXPECT_EQ(advice.accumulation, 3U);
  EXPECT_EQ(advice.learning_rate_factor, 3.0);
  EXPECT_EQ(advice.step, 0U);
  EXPECT_LT(advice.noise_scale, 0) << "not measured yet";
  const std::string name = "gradwire_session_batch_advice: ";
  expect_invalid(gradwire_session_batch_advice(nullptr, &advice), name + "session is NULL");
  expect_invalid(gradwire_session_batch_advice(session, nullptr), name + "advice is NULL");
  advice.struct_size = 3;
  expect_invalid(gradwire_session_batch_advice(session, &advice), "gradwire_batch_advice: struct_size is 3");
  gradwire_session_destroy(session);
  make("");
  advice.struct_size = sizeof advice;
  expect_invalid(gradwire_session_batch_advice(session, &advice), "the policy has no [batch]");
}

TEST_F(CReport, AbortEndsTheSessionOnEveryRank) {
  make("");
  expect_invalid(gradwire_session_abort(nullptr, "x"), "gradwire_session_abort: session is NULL");
  expect_invalid(gradwire_session_abort(session, nullptr), "gradwire_session_abort: why is NULL; give the reason");
  step();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == world_size() - 1) {
    ASSERT_OK(gradwire_session_abort(session, "the data set is gone"));
  }
  gradwire_status status = gradwire_session_ready(session, 0);
  if (status == GRADWIRE_OK) {
    status = gradwire_session_finish(session, nullptr);
  }
  expect_error(status, GRADWIRE_ABORTED, "the data set is gone");
}

}  // namespace
}  // namespace gradwire::test
