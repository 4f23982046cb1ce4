// Tests saved states: training goes on bit by bit, and residuals keep their worth in another world.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "checkpoint_trainer.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

// kResidualPolicy with residuals in bf16, apart from those of some tensors.
const std::string kNarrow = kResidualDefaults + R"(
residuals = { dtype = "bf16" }
[[rule]]
match = "layer1*"
codec = "int2"
residuals = { dtype = "f32" }
)" + kResidualRules;

// Mutation tried: owner residuals are not saved; the step is not saved.
void expect_to_resume_bit_by_bit(const std::string& policy) {
  const ScratchFolder folder;
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Trainer whole(transport, policy);
    run_steps(whole.session, whole.gradients, 0, 10);
    std::stringstream stream;
    whole.session.save(stream);
    whole.session.save(folder.path());
    run_steps(whole.session, whole.gradients, 10, 20);

    Trainer from_stream(transport, policy);
    from_stream.session.load(stream);
    EXPECT_EQ(from_stream.session.step(), 10U);
    run_steps(from_stream.session, from_stream.gradients, 10, 20);
    Trainer from_file(transport, policy);
    from_file.session.load(folder.path());
    run_steps(from_file.session, from_file.gradients, 10, 20);
    std::stringstream end[3];
    whole.session.save(end[0]);
    from_stream.session.save(end[1]);
    from_file.session.save(end[2]);
    EXPECT_EQ(end[0].str(), end[1].str()) << "residuals differ";
    EXPECT_EQ(end[0].str(), end[2].str()) << "residuals differ";
    for (std::size_t t = 0; t < whole.gradients.size(); ++t) {
      EXPECT_EQ(whole.gradients[t].values, from_stream.gradients[t].values);
      EXPECT_EQ(whole.gradients[t].values, from_file.gradients[t].values);
    }
  });
}

TEST(Checkpoint, ResumesBitByBit) { expect_to_resume_bit_by_bit(kResidualPolicy); }

TEST(Checkpoint, NarrowResidualsResumeBitByBit) { expect_to_resume_bit_by_bit(kNarrow); }

// The result of an exact step of zeros shows the residuals: it is the same before and after moving to another world.
std::vector<float> worth(const std::shared_ptr<Transport>& transport, const std::filesystem::path& path,
                         const std::string& policy) {
  Trainer trainer(transport, policy);
  trainer.session.load(path);
  trainer.session.flush();
  for (const Gradient& gradient : trainer.gradients) {
    trainer.session.ready_zero(gradient.id);
  }
  trainer.session.finish();
  EXPECT_EQ(trainer.session.residual_bytes(), 0U);
  std::vector<float> all;
  for (const Gradient& gradient : trainer.gradients) {
    all.insert(all.end(), gradient.values.begin(), gradient.values.end());
  }
  return all;
}

void reshard(const ScratchFolder& from, const ScratchFolder& to, int world) {
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    trainer.session.load(from.path());
    trainer.session.save(to.path());
  });
}

std::vector<float> worth_in_world(const ScratchFolder& folder, int world, const std::string& policy = kResidualPolicy,
                                  const std::vector<std::uint32_t>& nodes = {}) {
  std::vector<float> result;
  run_ranks(make_inproc_world(world, nodes), [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> mine = worth(transport, folder.path(), policy);
    if (transport->rank() == 0) {
      result = std::move(mine);
    }
  });
  return result;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, double bound = 1e-6) {
  ASSERT_EQ(a.size(), b.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += difference * difference;
    norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LE(std::sqrt(error / norm), bound);
}

// Mutation tried: local residuals keep their values although the mean's divisor changes.
TEST(Checkpoint, AnotherWorldSizeKeepsWhatResidualsAreWorth) {
  const ScratchFolder eight;
  const ScratchFolder four;
  const ScratchFolder again;
  run_ranks(8, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    run_steps(trainer.session, trainer.gradients, 0, 4);
    trainer.session.save(eight.path());
  });
  reshard(eight, four, 4);
  reshard(four, again, 8);
  const std::vector<float> before = worth_in_world(eight, 8);
  expect_close(before, worth_in_world(four, 4));
  expect_close(before, worth_in_world(again, 8));
  expect_close(before, worth_in_world(eight, 1));
  expect_close(before, worth_in_world(eight, 3));
  // Another policy has other buckets and other owners, or keeps no residuals at all.
  expect_close(before, worth_in_world(eight, 8, "[defaults]\ncodec = \"int4\"\n"));
  expect_close(before, worth_in_world(eight, 4, "[defaults]\ncodec = \"exact\"\nalgorithm = \"dense\"\n"));
}

// A file that was saved with residuals of one dtype loads into a session with another, in any world. Values that
// bf16 cannot hold are rounded once, by 2^-8 of them at most; from bf16 to f32, or to bf16 again, nothing changes.
TEST(Checkpoint, ResidualsOfAnotherDtypeAreTakenOver) {
  const auto save = [](const ScratchFolder& folder, const std::string& policy) {
    std::string bytes;
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      Trainer trainer(transport, policy);
      run_steps(trainer.session, trainer.gradients, 0, 4);
      trainer.session.save(folder.path());
      std::stringstream stream;
      trainer.session.save(stream);
      if (transport->rank() == 0) {
        bytes = stream.str();
      }
    });
    return bytes;
  };
  const ScratchFolder wide;
  const ScratchFolder narrow;
  const std::string of_wide = save(wide, kResidualPolicy);
  const std::string of_narrow = save(narrow, kNarrow);
  EXPECT_EQ(of_wide[8], 3);
  EXPECT_EQ(of_narrow[8], 5);
  EXPECT_LT(static_cast<double>(of_narrow.size()), 0.8 * static_cast<double>(of_wide.size()));

  const std::vector<float> exact = worth_in_world(wide, 3);
  const std::vector<float> rounded = worth_in_world(wide, 3, kNarrow);
  EXPECT_NE(exact, rounded);
  expect_close(exact, rounded, 1.0 / 256);
  expect_close(exact, worth_in_world(wide, 2, kNarrow), 1.0 / 256);
  const std::vector<float> before = worth_in_world(narrow, 3, kNarrow);
  EXPECT_EQ(before, worth_in_world(narrow, 3));
  expect_close(before, worth_in_world(narrow, 2));
  expect_close(before, worth_in_world(narrow, 5, kNarrow), 1.0 / 128);
}

// This includes residuals of sums over nodes. Mutation tried: another world does not take them over.
TEST(Checkpoint, ResidualsOfTiersKeepTheirWorthInAnyWorld) {
  const std::string tiers =
      "[defaults]\ncodec = \"int2\"\nalgorithm = \"hierarchical\"\nsmall = \"off\"\n[bucket]\nbytes = \"128KiB\"\n";
  const ScratchFolder folder;
  const std::vector<std::uint32_t> nodes{0, 0, 1, 1};
  run_ranks(make_inproc_world(4, nodes), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, tiers);
    run_steps(trainer.session, trainer.gradients, 0, 4);
    trainer.session.save(folder.path());
    std::stringstream stream;
    trainer.session.save(stream);
    const auto residuals = session::read_state(stream, "test").residuals;
    EXPECT_TRUE(std::any_of(residuals.begin(), residuals.end(), [](const session::SavedResidual& residual) {
      return residual.key.site == codec::EncodeSite::intra && !residual.range.values.empty();
    }));
  });
  const std::vector<float> before = worth_in_world(folder, 4, tiers, nodes);
  expect_close(before, worth_in_world(folder, 4, tiers, {0, 1, 1, 0}));
  expect_close(before, worth_in_world(folder, 4));  // a flat world
  expect_close(before, worth_in_world(folder, 6, tiers, {0, 0, 1, 1, 2, 2}));
  expect_close(before, worth_in_world(folder, 3, tiers));
  expect_close(before, worth_in_world(folder, 1, tiers));
  // Training goes on in another placement without a loss: no residual stays where nothing uses it.
  run_ranks(make_inproc_world(4, {0, 1, 0, 1}), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, tiers);
    trainer.session.load(folder.path());
    run_steps(trainer.session, trainer.gradients, 4, 6);
    trainer.session.flush();
    run_steps(trainer.session, trainer.gradients, 6, 7);
    EXPECT_EQ(trainer.session.residual_bytes(), 0U);
  });
}

// Weighted steps leave residuals in units of weight x gradient.
TEST(Checkpoint, AWeightedJobGoesOnAndMustStayWeighted) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    const auto weighted_steps = [](Trainer& trainer, std::uint64_t from, std::uint64_t until) {
      for (std::uint64_t step = from; step < until; ++step) {
        trainer.session.set_weight(1 + trainer.session.rank());
        run_steps(trainer.session, trainer.gradients, step, step + 1);
      }
    };
    Trainer whole(transport);
    weighted_steps(whole, 0, 3);
    std::stringstream stream;
    whole.session.save(stream);
    weighted_steps(whole, 3, 6);
    Trainer resumed(transport);
    resumed.session.load(stream);
    EXPECT_THROW(resumed.session.ready(resumed.gradients[0].id), Error);
    weighted_steps(resumed, 3, 6);
    for (std::size_t t = 0; t < whole.gradients.size(); ++t) {
      EXPECT_EQ(whole.gradients[t].values, resumed.gradients[t].values);
    }
  });
}

}  // namespace
}  // namespace gradwire::test
