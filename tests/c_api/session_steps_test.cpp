// Tests features of a session's steps through the C API: tickets, no_sync, gradients b, synchronised parameters.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "c_api_support.hpp"
#include "c_side.h"
#include "gradwire/mpi.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 2000;

class CSession : public ::testing::Test {
 protected:
  void make(const char* policy_text, const gradwire_session_options* options = nullptr) {
    gradwire_policy* policy = nullptr;
    ASSERT_OK(gradwire_policy_parse(policy_text, nullptr, &policy));
    ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, policy, options, &session));
    gradwire_policy_destroy(policy);
  }
  void add(const char* name, std::vector<float>& gradient, std::uint32_t& id) const {
    ASSERT_OK(gradwire_session_add(session, name, gradient.data(), gradient.size(), GRADWIRE_F32, &id));
  }
  void TearDown() override { gradwire_session_destroy(session); }

  // The session's memory must outlive it, even if an assertion ends a test.
  std::vector<float> a = std::vector<float>(kCount);
  std::vector<float> b = std::vector<float>(kCount);
  std::vector<float> parameter = std::vector<float>(kCount);
  std::vector<float> momentum = std::vector<float>(kCount);
  std::uint32_t a_id = 9;
  std::uint32_t b_id = 9;
  gradwire_session* session = nullptr;
};

// The values of a rank are `front` plus the rank, in place; these functions also give their sum and mean.
void fill(std::vector<float>& values, float front) {
  std::fill(values.begin(), values.end(), front + static_cast<float>(world_rank()));
}
std::vector<float> of_rank(float front) { return std::vector<float>(kCount, front + static_cast<float>(world_rank())); }
std::vector<float> mean_of(float front) {
  return std::vector<float>(kCount, front + static_cast<float>(world_size() - 1) / 2);
}

constexpr const char* kSmallBuckets = "[defaults]\ncodec = \"exact\"\nsmall = \"off\"\n[bucket]\nbytes = \"8KiB\"\n";

TEST_F(CSession, TicketsTellWhenAGradientIsThere) {
  make(kSmallBuckets);
  add("a", a, a_id);
  add("b", b, b_id);
  for (int step = 0; step < 2; ++step) {
    fill(a, 1);
    fill(b, 2);
    auto of_a = sized<gradwire_ticket>();
    auto of_b = sized<gradwire_ticket>();
    std::int32_t done = 9;
    // Buckets go in reverse order of add(), so b's may end while a is computed.
    ASSERT_OK(gradwire_session_ready_ticket(session, b_id, &of_b));
    ASSERT_OK(gradwire_session_wait(session, &of_b));
    EXPECT_EQ(b, mean_of(2));
    ASSERT_OK(gradwire_session_done(session, &of_b, &done));
    EXPECT_EQ(done, 1);
    EXPECT_EQ(a, of_rank(1)) << "not ready";
    ASSERT_OK(gradwire_session_ready_ticket(session, a_id, &of_a));
    while (done == 1) {  // asking drives the step
      ASSERT_OK(gradwire_session_done(session, &of_a, &done));
      done = done == 1 ? 2 : 1;
    }
    EXPECT_EQ(a, mean_of(1));
    ASSERT_OK(gradwire_session_finish(session, nullptr));
    ASSERT_OK(gradwire_session_done(session, &of_a, &done));
    EXPECT_EQ(done, 1) << "the step has ended";
  }
}

TEST_F(CSession, ZeroesHaveTicketsToo) {
  make(kSmallBuckets);
  std::fill(a.begin(), a.end(), 3.0F);
  add("a", a, a_id);
  auto ticket = sized<gradwire_ticket>();
  if (world_rank() == 0) {
    ASSERT_OK(gradwire_session_ready_zero_ticket(session, a_id, &ticket));
  } else {
    ASSERT_OK(gradwire_session_ready_ticket(session, a_id, &ticket));
  }
  ASSERT_OK(gradwire_session_wait(session, &ticket));
  const auto ranks = static_cast<float>(world_size());
  EXPECT_FLOAT_EQ(a[0], 3 * (ranks - 1) / ranks);
  EXPECT_FLOAT_EQ(a[1999], 3 * (ranks - 1) / ranks);
  ASSERT_OK(gradwire_session_finish(session, nullptr));
}

TEST_F(CSession, TicketsOfOthersAreRefused) {
  make(kSmallBuckets);
  add("a", a, a_id);
  add("b", b, b_id);
  gradwire_session* other = nullptr;
  ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, nullptr, &other));
  ASSERT_OK(gradwire_session_add(other, "c", momentum.data(), kCount, GRADWIRE_F32, nullptr));
  auto of_other = sized<gradwire_ticket>();
  ASSERT_OK(gradwire_session_ready_ticket(other, 0, &of_other));
  ASSERT_OK(gradwire_session_finish(other, nullptr));

  std::int32_t done = 7;
  expect_invalid(gradwire_session_done(session, &of_other, &done), "of another session; give a ticket that ready()");
  expect_invalid(gradwire_session_wait(session, &of_other), "of another session; give a ticket that ready()");
  const auto nobodys = sized<gradwire_ticket>();
  expect_invalid(gradwire_session_done(session, &nobodys, &done),
                 "gradwire_session_done: no ready wrote this ticket; give one that");
  expect_invalid(gradwire_session_wait(session, &nobodys), "gradwire_session_wait: no ready wrote this ticket");
  const gradwire_ticket no_size{};
  expect_invalid(gradwire_session_wait(session, &no_size), "gradwire_ticket: struct_size is 0; set it to");
  expect_invalid(gradwire_session_wait(session, nullptr), "gradwire_session_wait: ticket is NULL; give one");
  expect_invalid(gradwire_session_wait(nullptr, &of_other), "gradwire_session_wait: session is NULL; give one");
  expect_invalid(gradwire_session_done(session, &of_other, nullptr), "gradwire_session_done: done is NULL");
  expect_invalid(gradwire_session_done(nullptr, &of_other, &done), "gradwire_session_done: session is NULL");
  EXPECT_EQ(done, 7) << "no error writes it";
  auto ticket = sized<gradwire_ticket>();
  expect_invalid(gradwire_session_ready_ticket(session, 5, &ticket), "tensor id 5 is not one of the 2");
  expect_invalid(gradwire_session_ready_ticket(session, 0, nullptr), "gradwire_session_ready_ticket: ticket is NULL");
  expect_invalid(gradwire_session_ready_zero_ticket(session, 0, nullptr), "ticket is NULL; give where to write it");
  gradwire_ticket unsized{};
  expect_invalid(gradwire_session_ready_ticket(session, 0, &unsized), "gradwire_ticket: struct_size is 0");
  expect_invalid(gradwire_session_ready_at(session, 0, a.data(), a.size(), GRADWIRE_F32, &unsized), "struct_size is 0");

  // None of these calls was a ready(): the step still waits for both. b goes first, and a's bucket cannot start before
  // it.
  ASSERT_OK(gradwire_session_ready_ticket(session, a_id, &ticket));
  ASSERT_OK(gradwire_session_done(session, &ticket, &done));
  EXPECT_EQ(done, 0);
  expect_invalid(gradwire_session_wait(session, &ticket), "not ready, and must start first; call ready() for them");
  ASSERT_OK(gradwire_session_ready(session, b_id));
  ASSERT_OK(gradwire_session_wait(session, &ticket));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  gradwire_session_destroy(other);
}

TEST_F(CSession, NoSyncAccumulatesLocally) {
  make(kSmallBuckets);
  fill(a, 5);
  add("a", a, a_id);
  ASSERT_OK(gradwire_session_set_no_sync(session, GRADWIRE_ON));
  auto ticket = sized<gradwire_ticket>();
  std::int32_t done = 0;
  ASSERT_OK(gradwire_session_ready_ticket(session, a_id, &ticket));
  ASSERT_OK(gradwire_session_done(session, &ticket, &done));
  EXPECT_EQ(done, 1);
  ASSERT_OK(gradwire_session_wait(session, &ticket));
  EXPECT_EQ(a, of_rank(5));
  expect_invalid(gradwire_session_finish(session, nullptr), "finish: called under no_sync()");
  expect_invalid(gradwire_session_set_no_sync(session, static_cast<gradwire_switch>(3)),
                 "gradwire_session_set_no_sync: no_sync is 3; give GRADWIRE_ON or GRADWIRE_OFF");
  expect_invalid(gradwire_session_set_no_sync(nullptr, GRADWIRE_ON), "session is NULL");
  expect_invalid(gradwire_session_finish(session, nullptr), "finish: called under no_sync()");
  ASSERT_OK(gradwire_session_set_no_sync(session, GRADWIRE_OFF));
  fill(a, 7);  // of the second micro-step
  ASSERT_OK(gradwire_session_ready(session, a_id));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  EXPECT_EQ(a, mean_of(7));
}

TEST_F(CSession, AGradientMayLieElsewhereInAStep) {
  make(kSmallBuckets);
  fill(a, 1);
  fill(b, 4);
  add("a", a, a_id);
  expect_invalid(gradwire_session_ready_at(session, a_id, b.data(), 1999, GRADWIRE_F32, nullptr),
                 "\"a\" was added as f32 x 2000, but is now f32 x 1999");
  expect_invalid(gradwire_session_ready_at(session, a_id, b.data(), 2000, GRADWIRE_BF16, nullptr), "bf16 x 2000");
  expect_invalid(gradwire_session_ready_at(session, a_id, nullptr, 2000, GRADWIRE_F32, nullptr), "with null data");
  expect_invalid(gradwire_session_ready_at(session, a_id, b.data(), 2000, static_cast<gradwire_dtype>(8), nullptr),
                 "gradwire_session_ready_at: dtype is 8");
  expect_invalid(gradwire_session_ready_at(nullptr, a_id, b.data(), 2000, GRADWIRE_F32, nullptr),
                 "gradwire_session_ready_at: session is NULL");
  auto ticket = sized<gradwire_ticket>();
  ASSERT_OK(gradwire_session_ready_at(session, a_id, b.data(), 2000, GRADWIRE_F32, &ticket));
  ASSERT_OK(gradwire_session_wait(session, &ticket));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  EXPECT_EQ(b, mean_of(4));
  EXPECT_EQ(a, of_rank(1));
  ASSERT_OK(gradwire_session_ready_at(session, a_id, b.data(), 2000, GRADWIRE_F32, nullptr));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
}

TEST_F(CSession, TrainsAProgramInCByLocalSteps) {
  EXPECT_EQ(c_side_local_steps(MPI_COMM_WORLD), 0) << gradwire_last_error();
}

// Parameters p and state m of each rank, computed in one place.
struct Ranks {
  std::vector<float> p, m;

  void step() {
    for (std::size_t rank = 0; rank < p.size(); ++rank) {
      m[rank] = 0.5F * m[rank] + static_cast<float>(rank + 1);
      p[rank] -= 0.25F * m[rank];
    }
  }
  void sync_parameters() {
    for (auto* values : {&p, &m}) {
      float sum = 0;
      for (const float value : *values) {
        sum += value;
      }
      values->assign(values->size(), sum / static_cast<float>(values->size()));
    }
  }
};

TEST_F(CSession, ParametersMeetEveryFewSteps) {
  make("[defaults]\nsync = { every = 3 }\n");
  const auto rank = static_cast<std::size_t>(world_rank());
  Ranks expected;
  for (int r = 0; r < world_size(); ++r) {
    expected.p.push_back(static_cast<float>(r));
    expected.m.push_back(static_cast<float>(10 * r));
  }
  std::fill(a.begin(), a.end(), static_cast<float>(rank + 1));
  std::fill(parameter.begin(), parameter.end(), expected.p[rank]);
  std::fill(momentum.begin(), momentum.end(), expected.m[rank]);
  void* states[] = {momentum.data()};
  auto parameters = sized<gradwire_tensor_parameters>();
  parameters.parameter = parameter.data();
  parameters.states = states;
  parameters.state_count = 1;
  ASSERT_OK(gradwire_session_add_with_parameters(session, "w", a.data(), kCount, GRADWIRE_F32, &parameters, &a_id));
  EXPECT_EQ(a_id, 0U);
  states[0] = nullptr;  // the array is copied
  const auto check = [&](int step) {
    EXPECT_NEAR(parameter[kCount - 1], expected.p[rank], 1e-5) << step;
    EXPECT_NEAR(momentum[kCount - 1], expected.m[rank], 1e-5) << step;
  };
  for (int step = 0; step < 8; ++step) {
    ASSERT_OK(gradwire_session_ready(session, a_id));
    ASSERT_OK(gradwire_session_finish(session, nullptr));
    if (step > 0 && step % 3 == 0) {
      expected.sync_parameters();
    }
    check(step);
    EXPECT_EQ(a[kCount - 1], static_cast<float>(rank + 1)) << "local steps leave gradients unchanged";
    for (std::size_t i = 0; i < kCount; ++i) {
      momentum[i] = 0.5F * momentum[i] + a[i];
      parameter[i] -= 0.25F * momentum[i];
    }
    expected.step();
  }
  for (int call = 0; call < 2; ++call) {
    ASSERT_OK(gradwire_session_sync_parameters(session));
    expected.sync_parameters();
    check(100 + call);
  }
  expect_invalid(gradwire_session_sync_parameters(nullptr),
                 "gradwire_session_sync_parameters: session is NULL; give one that");
  ASSERT_OK(gradwire_session_ready(session, a_id));
  expect_invalid(gradwire_session_sync_parameters(session), "sync_parameters: step 8 is under way");
  ASSERT_OK(gradwire_session_finish(session, nullptr));
}

TEST_F(CSession, ParametersThatAreWrongAreNamed) {
  make("[defaults]\nsync = { every = 2 }\n");
  std::vector<float>& memory = a;
  auto parameters = sized<gradwire_tensor_parameters>();
  const auto add_it = [&](const gradwire_tensor_parameters* given, int dtype = GRADWIRE_F32) {
    return gradwire_session_add_with_parameters(session, "w", memory.data(), 10, static_cast<gradwire_dtype>(dtype),
                                                given, nullptr);
  };
  const std::string name = "gradwire_session_add_with_parameters: ";
  expect_invalid(add_it(nullptr), name + "parameters is NULL; give a gradwire_tensor_parameters");
  expect_invalid(add_it(&parameters), "the parameter of \"w\" has null data with count 10");
  parameters.parameter = memory.data() + 10;
  parameters.state_count = 2;
  expect_invalid(add_it(&parameters), name + "states is NULL with count 2; give its address, or count 0");
  void* states[] = {memory.data() + 20, nullptr};
  parameters.states = states;
  expect_invalid(add_it(&parameters), "state 2 of \"w\" has null data with count 10");
  parameters.state_count = 1;
  expect_invalid(add_it(&parameters, 0), name + "dtype is 0; give one of gradwire_dtype");
  parameters.struct_size = 0;
  expect_invalid(add_it(&parameters), "gradwire_tensor_parameters: struct_size is 0; set it to sizeof");
  parameters.struct_size = sizeof parameters;
  expect_invalid(gradwire_session_add_with_parameters(nullptr, "w", memory.data(), 10, GRADWIRE_F32, &parameters, {}),
                 name + "session is NULL");
  EXPECT_OK(add_it(&parameters)) << "nothing was added before";

  // A tensor without parameters cannot have local steps.
  ASSERT_OK(gradwire_session_add(session, "v", memory.data() + 30, 10, GRADWIRE_F32, nullptr));
  gradwire_status status = gradwire_session_ready(session, 0);
  EXPECT_NE(status, GRADWIRE_OK);
  EXPECT_THAT(gradwire_last_error(), HasSubstr("\"v\""));
}

TEST_F(CSession, RulesSeeHowManyDimensionsATensorHas) {
  make("[[rule]]\nndim = 2\ncodec = \"int4\"\n[[rule]]\nndim = 3\ncodec = \"fp16\"\n");
  constexpr std::size_t kEach = 40000;
  a.resize(4 * kEach);
  std::vector<float>& memory = a;
  ASSERT_OK(gradwire_session_add_with_ndim(session, "matrix", memory.data(), kEach, GRADWIRE_F32, 2, &a_id));
  EXPECT_EQ(a_id, 0U);
  auto parameters = sized<gradwire_tensor_parameters>();
  parameters.parameter = memory.data() + kEach;
  parameters.ndim = 3;
  ASSERT_OK(gradwire_session_add_with_parameters(session, "volume", memory.data() + 2 * kEach, kEach, GRADWIRE_F32,
                                                 &parameters, &a_id));
  EXPECT_EQ(a_id, 1U);
  ASSERT_OK(gradwire_session_add(session, "vector", memory.data() + 3 * kEach, kEach, GRADWIRE_F32, nullptr));
  std::string text(10000, ' ');
  std::uint64_t length = 0;
  ASSERT_OK(gradwire_session_explain(session, text.data(), text.size(), &length));
  text.resize(length);
  EXPECT_THAT(text, ::testing::ContainsRegex("matrix [^\n]* int4 "));
  EXPECT_THAT(text, ::testing::ContainsRegex("volume [^\n]* fp16 "));
  EXPECT_THAT(text, ::testing::ContainsRegex("vector [^\n]* int8 "));
  expect_invalid(gradwire_session_add_with_ndim(nullptr, "x", memory.data(), 1, GRADWIRE_F32, 2, nullptr),
                 "gradwire_session_add_with_ndim: session is NULL");
  expect_invalid(
      gradwire_session_add_with_ndim(session, "x", memory.data(), 1, static_cast<gradwire_dtype>(77), 2, nullptr),
      "gradwire_session_add_with_ndim: dtype is 77");
}

// The one element that top-k keeps is the largest in units of the scale. Mutations tried: the scale is not passed on;
// ndim is not passed on.
TEST_F(CSession, AScaleSaysWhatIsLarge) {
  make("[[rule]]\nndim = 2\ncodec = \"topk(1/4096)+exact\"\nalgorithm = \"one_shot\"\n");
  std::vector<float> gradient(4096), scale(4096, 1.0F);
  gradient[7] = 10;
  gradient[9] = 1;
  scale[7] = 32;
  auto options = sized<gradwire_tensor_options>();
  options.scale = scale.data();
  options.ndim = 2;
  const auto add_it = [&] {
    return gradwire_session_add_with_options(session, "w", gradient.data(), 4096, GRADWIRE_F32, &options, &a_id);
  };
  options.reserved = 1;
  EXPECT_EQ(add_it(), GRADWIRE_UNSUPPORTED);
  options.reserved = 0;
  ASSERT_OK(add_it());
  ASSERT_OK(gradwire_session_add_with_options(session, "v", a.data(), kCount, GRADWIRE_F32, nullptr, &b_id));
  ASSERT_OK(gradwire_session_ready(session, a_id));
  ASSERT_OK(gradwire_session_ready(session, b_id));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  EXPECT_EQ(gradient[9], 1.0F);
  EXPECT_EQ(gradient[7], world_size() == 1 ? 10.0F : 0.0F) << "the value waits for the next step";
  options.struct_size = 0;
  expect_invalid(add_it(), "gradwire_tensor_options: struct_size is 0; set it to sizeof");
}

TEST_F(CSession, SaysWhoseGradientsWereNotFinite) {
  auto options = sized<gradwire_session_options>();
  options.nonfinite = GRADWIRE_SKIP;
  make("", &options);
  const int last = world_size() - 1;
  std::fill(a.begin(), a.end(), world_rank() == last ? std::numeric_limits<float>::infinity() : 1.0F);
  add("a", a, a_id);
  std::uint64_t count = 9;
  std::vector<int> ranks(static_cast<std::size_t>(world_size()), -1);
  ASSERT_OK(gradwire_session_nonfinite_ranks(session, nullptr, 0, &count));
  EXPECT_EQ(count, 0U) << "no step has ended";
  ASSERT_OK(gradwire_session_ready(session, a_id));
  auto outcome = sized<gradwire_step_outcome>();
  ASSERT_OK(gradwire_session_finish(session, &outcome));
  EXPECT_EQ(outcome.skipped, 1);
  ASSERT_OK(gradwire_session_nonfinite_ranks(session, ranks.data(), ranks.size(), &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(ranks[0], last);
  const std::string name = "gradwire_session_nonfinite_ranks: ";
  count = 9;
  expect_invalid(gradwire_session_nonfinite_ranks(session, ranks.data(), 0, &count),
                 name + "capacity is 0 for 1 ranks; give room");
  EXPECT_EQ(count, 1U);
  expect_invalid(gradwire_session_nonfinite_ranks(session, nullptr, 1, &count), name + "ranks is NULL");
  expect_invalid(gradwire_session_nonfinite_ranks(session, ranks.data(), 1, nullptr), name + "count is NULL");
  expect_invalid(gradwire_session_nonfinite_ranks(nullptr, ranks.data(), 1, &count), name + "session is NULL");

  fill(a, 1);
  ASSERT_OK(gradwire_session_ready(session, a_id));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  ASSERT_OK(gradwire_session_nonfinite_ranks(session, nullptr, 0, &count));
  EXPECT_EQ(count, 0U);
}

}  // namespace
}  // namespace gradwire::test
