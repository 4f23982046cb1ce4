// Plays features of the C API, in a world of this process alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/support/scratch_folder.hpp"
#include "tests/support_matrix/c_support.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support::play_in_c {
namespace {

void steps(const std::string& policy, int count) { SessionInC(policy).add().step(count); }

const std::string kEvery = "sync = { every = 2 }\n";
const std::string kOuter = "sync = { every = 16, outer = { lr = 0.7, momentum = 0.9 } }\n";
const std::string kAsync = "sync = { async = true, staleness = 1 }\n";

std::array<float, 2> pulled(const SessionInC& session) {
  const std::uint64_t id = 3;
  std::array<float, 2> row{};
  must(gradwire_session_pull(session.get(), 0, &id, 1, row.data()));
  return row;
}

// Makes one all-reduce of ones in a world of one rank.
void reduce(const gradwire_call_options& options,
            const gradwire_communicator_options& of = sized<gradwire_communicator_options>()) {
  const CommunicatorInC communicator(of);
  std::vector<float> values(kCount, 1);
  must(gradwire_all_reduce(communicator.get(), values.data(), values.data(), kCount, GRADWIRE_F32, &options, nullptr));
  EXPECT_NEAR(values[7], 1, 0.1);
}

}  // namespace

void codecs() {
  for (const char* codec : {"exact", "bf16", "int8", "int4"}) {
    steps(with(codec), 1);
  }
}

void packed() { steps(with("exact+zstd"), 1); }

void feedback() {
  SessionInC session(with("topk(1%)+int8", "decay = 0.9\nwarmup = [{ until_step = 1, codec = \"int8\" }]\n"));
  session.add().step(3);
  std::uint64_t bytes = 0;
  must(gradwire_session_residual_bytes(session.get(), &bytes));
}

void narrow_residuals() {
  steps(with("int4", "residuals = { dtype = \"bf16\" }\n"), 2);
  steps(with("int4", "residuals = { dtype = \"int8\" }\n"), 2);
}

void automatic() { steps(with("auto"), 3); }
void hierarchical() { steps(with("int8", "algorithm = \"hierarchical\"\n"), 1); }
void dense() { steps(with("exact", "algorithm = \"dense\"\n"), 2); }

void small_steps() {
  const SessionInC session(with("exact", "algorithm = \"dense\"\n"));
  float value = 3;
  std::uint32_t id = 0;
  must(gradwire_session_add(session.get(), "w", &value, 1, GRADWIRE_F32, &id));
  for (int step = 0; step < 20; ++step) {
    must(gradwire_session_ready(session.get(), id));
    must(gradwire_session_finish(session.get(), nullptr));
  }
  EXPECT_EQ(value, 3);
}

void dtypes() {
  SessionInC session(with("int8"));
  std::fill(session.parameter.begin(), session.parameter.end(), 0.0F);
  std::array<std::uint32_t, 4> ids{};
  must(gradwire_session_add(session.get(), "f32", session.gradient.data(), kCount, GRADWIRE_F32, ids.data()));
  must(gradwire_session_add(session.get(), "f16", session.parameter.data(), kCount, GRADWIRE_F16, &ids[1]));
  must(gradwire_session_add(session.get(), "bf16", session.momentum.data(), kCount, GRADWIRE_BF16, &ids[2]));
  must(gradwire_session_add(session.get(), "f64", session.other.data(), kCount / 2, GRADWIRE_F64, &ids[3]));
  for (const std::uint32_t id : ids) {
    must(gradwire_session_ready(session.get(), id));
  }
  must(gradwire_session_finish(session.get(), nullptr));
}

void scales() { SessionInC(with("int8")).add_with_scale().step(3); }
void scales_in_modes() { SessionInC(with("int8", kAsync)).add_with_scale().step(); }

void other_address() {
  SessionInC session(with("int8"));
  session.add();
  must(gradwire_session_ready_at(session.get(), session.tensor, session.parameter.data(), kCount, GRADWIRE_F32,
                                 nullptr));
  must(gradwire_session_finish(session.get(), nullptr));
}

void checksum() {
  auto options = sized<gradwire_session_options>();
  options.checksum = GRADWIRE_ON;
  SessionInC(with("int8"), options).add().step();
}

void compare_ranks() {
  auto options = sized<gradwire_session_options>();
  options.compare_ranks_every = 1;
  SessionInC(with("int8"), options).add().step(2);
}

void local_steps() {
  SessionInC session(with("int8", kEvery));
  session.add_with_parameters().step(4);
  must(gradwire_session_sync_parameters(session.get()));
}

void outer() { SessionInC(with("int8", kOuter)).add_with_parameters().step(17); }
void late_results() { SessionInC(with("int8", kAsync)).add_with_parameters().step(4); }

void scale_under_outer() {
  SessionInC session(with("int8", kOuter));
  session.add_with_parameters();
  std::uint64_t length = 0;
  must(gradwire_session_explain(session.get(), nullptr, 0, &length));
  must(gradwire_session_set_loss_scale(session.get(), 2));
}

void rows_of_a_tensor() {
  SessionInC("[[rule]]\nmatch = \"w\"\ncodec = \"int8\"\nsync = { rows = true, staleness = 1 }\n").add();
}

void max_error() { steps(with("int8", "max_error = 0.1\n"), 1); }

void weights() {
  SessionInC session(with("exact"));
  must(gradwire_session_set_weight(session.get(), 3));
  session.add().step();
  EXPECT_EQ(session.gradient[7], 1);
}

void loss_scale() {
  SessionInC session(with("int8"));
  session.add();
  must(gradwire_session_set_loss_scale(session.get(), 2));
  session.gradient[7] = std::numeric_limits<float>::quiet_NaN();
  auto outcome = sized<gradwire_step_outcome>();
  must(gradwire_session_ready(session.get(), session.tensor));
  must(gradwire_session_finish(session.get(), &outcome));
  EXPECT_EQ(outcome.skipped, 1);
}

void no_sync() {
  SessionInC session(with("int8"));
  session.add();
  must(gradwire_session_set_no_sync(session.get(), GRADWIRE_ON));
  must(gradwire_session_ready(session.get(), session.tensor));
  must(gradwire_session_set_no_sync(session.get(), GRADWIRE_OFF));
  session.step();
}

void tickets() {
  SessionInC session(with("int8"));
  session.add();
  auto ticket = sized<gradwire_ticket>();
  std::int32_t done = 0;
  must(gradwire_session_ready_ticket(session.get(), session.tensor, &ticket));
  must(gradwire_session_wait(session.get(), &ticket));
  must(gradwire_session_done(session.get(), &ticket, &done));
  EXPECT_EQ(done, 1);
  must(gradwire_session_finish(session.get(), nullptr));
}

void flush() {
  SessionInC session(with("int4"));
  session.add().step();
  must(gradwire_session_flush(session.get()));
  session.step();
}

void broadcast() {
  SessionInC session(with("int8"));
  must(gradwire_session_broadcast(session.get(), session.parameter.data(), kCount, GRADWIRE_F32, 0));
}

void reserve() {
  SessionInC session(with("int8"));
  session.add();
  must(gradwire_session_reserve(session.get()));
  session.step();
}

void link() {
  const SessionInC session(with("int8"));
  auto link = sized<gradwire_link_estimate>();
  must(gradwire_session_link(session.get(), &link));
}

void batch() {
  SessionInC session(with("int8", "[batch]\ntarget_exposed = \"10%\"\n"));
  session.add().step(2);
  auto advice = sized<gradwire_batch_advice>();
  must(gradwire_session_batch_advice(session.get(), &advice));
  EXPECT_GE(advice.accumulation, 1U);
}

void explain() {
  SessionInC session(with("int8"));
  session.add().step();
  std::array<char, 64> text{};
  std::uint64_t length = 0;
  must(gradwire_session_fingerprint(session.get(), text.data(), text.size(), &length));
  EXPECT_EQ(length, 16U);
  must(gradwire_session_explain(session.get(), nullptr, 0, &length));
  auto statistics = sized<gradwire_statistics>();
  must(gradwire_session_statistics(session.get(), &statistics));
  EXPECT_EQ(statistics.calls, 1U);
}

void folder() {
  const test::ScratchFolder scratch;
  for (const bool loads : {false, true}) {
    SessionInC session(with("int4"));
    session.add();
    if (loads) {
      std::uint64_t step = 0;
      must(gradwire_session_load(session.get(), scratch.path().c_str()));
      must(gradwire_session_step(session.get(), &step));
      EXPECT_EQ(step, 1U);
    } else {
      session.step();
      must(gradwire_session_save(session.get(), scratch.path().c_str()));
    }
  }
}

void all_reduce() { reduce(sized<gradwire_call_options>()); }

void automatic_calls() {
  auto options = sized<gradwire_call_options>();
  options.algorithm = GRADWIRE_ALGORITHM_AUTO;
  reduce(options);
}

void hierarchical_calls() {
  auto options = sized<gradwire_call_options>();
  options.algorithm = GRADWIRE_HIERARCHICAL;
  reduce(options);
}

void feedback_of_calls() {
  Owned<gradwire_feedback> feedback(&gradwire_feedback_destroy);
  must(gradwire_feedback_create(kCount, feedback.to()));
  auto options = sized<gradwire_call_options>();
  options.feedback = feedback.get();
  reduce(options);
}

void other_calls() {
  const CommunicatorInC communicator;
  std::vector<float> values(kCount, 1);
  std::vector<float> part(kCount);
  const std::uint64_t count = kCount;
  must(gradwire_reduce_scatter(communicator.get(), values.data(), part.data(), &count, GRADWIRE_F32, nullptr, nullptr));
  must(gradwire_all_gather(communicator.get(), part.data(), values.data(), &count, GRADWIRE_F32, nullptr, nullptr));
  must(gradwire_broadcast(communicator.get(), values.data(), kCount, GRADWIRE_F32, 0, nullptr, nullptr));
  must(gradwire_barrier(communicator.get()));
  EXPECT_NEAR(values[7], 1, 0.1);
}

void checked_calls() {
  auto options = sized<gradwire_communicator_options>();
  options.checksum = GRADWIRE_ON;
  reduce(sized<gradwire_call_options>(), options);
}

void tables_of_sessions() {
  const SessionInC session(with("int8"));
  const gradwire_table_options options = rows_in_c();
  must(gradwire_session_add_table(session.get(), nullptr, &options, nullptr));
  const std::uint64_t id = 3;
  const std::array<float, 2> gradient{1, 2};
  must(gradwire_session_push(session.get(), 0, &id, 1, gradient.data()));
  must(gradwire_session_finish(session.get(), nullptr));
  EXPECT_EQ(pulled(session), (std::array<float, 2>{-1, -2}));
}

void table() {
  const TableInC table;
  const std::uint64_t id = 3;
  std::array<float, 2> row{1, 2};
  must(gradwire_table_push(table.get(), &id, 1, row.data()));
  must(gradwire_table_tick(table.get()));
  must(gradwire_table_synchronize(table.get()));
  must(gradwire_table_pull(table.get(), &id, 1, row.data()));
  EXPECT_EQ(row, (std::array<float, 2>{-1, -2}));
}

}  // namespace gradwire::support::play_in_c
