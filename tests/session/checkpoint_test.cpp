// Tests saved states: training goes on bit by bit, in another world too, and corrupt bytes change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/durable_file.hpp"
#include "model.hpp"
#include "reseal.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

const char* const kPolicy = R"(
[defaults]
codec = "topk(2%)+int8"
small = "off"
[[rule]]
match = "layer*"
codec = "int2"
[bucket]
bytes = "128KiB"
)";

// The same, with residuals in bf16 but for some tensors.
const char* const kNarrow = R"(
[defaults]
codec = "topk(2%)+int8"
small = "off"
residuals = { dtype = "bf16" }
[[rule]]
match = "layer1*"
codec = "int2"
residuals = { dtype = "f32" }
[[rule]]
match = "layer*"
codec = "int2"
[bucket]
bytes = "128KiB"
)";

void run_steps(Session& session, std::vector<Gradient>& gradients, std::uint64_t from, std::uint64_t until) {
  for (std::uint64_t step = from; step < until; ++step) {
    fill(gradients, session.rank(), step);
    for (const Gradient& gradient : gradients) {
      session.ready(gradient.id);
    }
    session.finish();
  }
}

struct Trainer {
  std::vector<Gradient> gradients = make_gradients();
  Session session;

  explicit Trainer(const std::shared_ptr<Transport>& transport, const char* policy = kPolicy)
      : session(transport, Policy::parse(policy)) {
    add_all(session, gradients);
  }
};

// Mutation tried: owner residuals are not saved; the step is not saved.
void expect_to_resume_bit_by_bit(const char* policy) {
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

TEST(Checkpoint, ResumesBitByBit) { expect_to_resume_bit_by_bit(kPolicy); }

TEST(Checkpoint, NarrowResidualsResumeBitByBit) {
  expect_to_resume_bit_by_bit(kNarrow);
  std::string least = kNarrow;
  least.replace(least.find("bf16"), 4, "int8");
  expect_to_resume_bit_by_bit(least.c_str());
}

// The result of an exact step of zeros shows the residuals: it is the same before and after moving to another world.
std::vector<float> worth(const std::shared_ptr<Transport>& transport, const std::filesystem::path& path,
                         const char* policy) {
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

std::vector<float> worth_in_world(const ScratchFolder& folder, int world, const char* policy = kPolicy,
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

// A file that was saved with residuals of one dtype loads into a session with another, in any world. What bf16 cannot
// hold is rounded once, to 2^-8 of it at most; from bf16 to f32, or to bf16 again, nothing changes.
TEST(Checkpoint, ResidualsOfAnotherDtypeAreTakenOver) {
  const auto save = [](const ScratchFolder& folder, const char* policy) {
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
  const std::string of_wide = save(wide, kPolicy);
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
  const char* const tiers =
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

std::string saved_bytes() {
  std::string bytes;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    run_steps(trainer.session, trainer.gradients, 0, 2);
    std::stringstream stream;
    trainer.session.save(stream);
    if (transport->rank() == 0) {
      bytes = stream.str();
    }
  });
  return bytes;
}

std::string load_error(Session& session, const std::string& bytes, ErrorCode code) {
  std::stringstream stream(bytes);
  try {
    session.load(stream);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was loaded";
  return {};
}

TEST(Checkpoint, ABadFileIsAnErrorAndChangesNothing) {
  const std::string good = saved_bytes();
  auto world = make_inproc_world(2);
  Trainer trainer(world[0]);
  std::stringstream before;
  trainer.session.save(before);
  const auto expect = [&](const std::string& bytes, ErrorCode code, const char* what) {
    EXPECT_NE(load_error(trainer.session, bytes, code).find(what), std::string::npos) << what;
  };
  expect("", ErrorCode::corrupt, "no saved state of gradwire");
  expect("something else entirely", ErrorCode::corrupt, "no saved state of gradwire");
  expect(good.substr(0, 20), ErrorCode::corrupt, "ends too early");
  expect(good.substr(0, good.size() - 1), ErrorCode::corrupt, "bytes of content but ends after");
  std::string damaged = good;
  damaged[good.size() / 2] = static_cast<char>(damaged[good.size() / 2] ^ 1);
  expect(damaged, ErrorCode::corrupt, "its checksum is wrong");
  std::string newer = good;
  newer[8] = 9;
  expect(newer, ErrorCode::corrupt, "its checksum is wrong");  // the version itself is damaged
  reseal(newer);
  expect(newer, ErrorCode::unsupported, "version 9");
  std::stringstream after;
  trainer.session.save(after);
  EXPECT_EQ(before.str(), after.str());
  std::stringstream stream(good);
  trainer.session.load(stream);
  EXPECT_EQ(trainer.session.step(), 2U);
}

// Version 1 ended after the residuals, version 2 after the late results.
TEST(Checkpoint, OlderVersionsAreReadToo) {
  const std::string bytes = saved_bytes();
  constexpr std::size_t kHash = 8;
  constexpr std::size_t kEmptyList = 4;
  for (const int version : {1, 2}) {
    const std::size_t less = (version == 1 ? 3 : 1) * kEmptyList;
    std::string older = bytes.substr(0, bytes.size() - kHash - less) + std::string(kHash, '\0');
    older[8] = static_cast<char>(version);
    std::uint64_t body = 0;
    std::memcpy(&body, older.data() + 16, sizeof body);
    body -= less;
    std::memcpy(older.data() + 16, &body, sizeof body);
    reseal(older);
    auto world = make_inproc_world(2);
    Trainer trainer(world[0]);
    std::stringstream stream(older);
    trainer.session.load(stream);
    std::stringstream again;
    trainer.session.save(again);
    EXPECT_EQ(again.str(), bytes) << version;
  }
}

TEST(Checkpoint, AnotherModelIsNamed) {
  const std::string bytes = saved_bytes();
  auto world = make_inproc_world(2);
  std::vector<float> values(10);
  Session session(world[0], Policy());
  session.add("embed.weight", view(values.data(), values.size()));
  const std::string what = load_error(session, bytes, ErrorCode::mismatch);
  EXPECT_NE(what.find("tensor 0 is \"embed.weight\" f32 x 50000 there and \"embed.weight\" f32 x 10 here"),
            std::string::npos)
      << what;
  Trainer other_rank(world[1]);
  EXPECT_NE(load_error(other_rank.session, bytes, ErrorCode::mismatch).find("rank 0 of 2, this is rank 1 of 2"),
            std::string::npos);
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

TEST(Checkpoint, ResidualsOfASumAreNotThoseOfAMean) {
  const std::string bytes = saved_bytes();
  auto world = make_inproc_world(2);
  auto gradients = make_gradients();
  Session session(world[0], Policy::parse(kPolicy), {.reduction = Reduction::sum});
  add_all(session, gradients);
  EXPECT_NE(load_error(session, bytes, ErrorCode::mismatch).find("another reduction"), std::string::npos);
}

// Bytes that follow a state in a stream belong to the caller.
TEST(Checkpoint, AStreamMayHoldMore) {
  auto transport = make_inproc_world(1)[0];
  Trainer trainer(transport);
  std::stringstream stream;
  trainer.session.save(stream);
  stream << "parameters";
  Trainer other(make_inproc_world(1)[0]);
  other.session.load(stream);
  std::string rest;
  stream >> rest;
  EXPECT_EQ(rest, "parameters");
}

// Mutation tried: a save replaces the files of the previous one, so nothing that can be loaded is left.
TEST(Checkpoint, ASaveThatIsCutOffLeavesTheOneBefore) {
  const ScratchFolder folder;
  std::vector<std::string> second(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Trainer trainer(transport);
    for (std::uint64_t step = 0; step < 3; ++step) {
      run_steps(trainer.session, trainer.gradients, step, step + 1);
      if (step == 1) {
        std::stringstream stream;
        trainer.session.save(stream);
        second[rank] = stream.str();
      }
      trainer.session.save(folder.path());
      trainer.session.save(folder.path());  // twice, but the previous save is of another step
    }
  });
  // The files are as if rank 1 had been killed before it wrote its own.
  const std::filesystem::path file = folder.path() / "rank-1-of-2.gradwire";
  ASSERT_TRUE(std::filesystem::exists(previous_of(file)));
  std::filesystem::rename(previous_of(file), file);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    trainer.session.load(folder.path());
    EXPECT_EQ(trainer.session.step(), 2U);
    std::stringstream stream;
    trainer.session.save(stream);
    EXPECT_TRUE(stream.str() == second[static_cast<std::size_t>(transport->rank())]);
  });
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    trainer.session.load(folder.path());
    EXPECT_EQ(trainer.session.step(), 2U);
  });
}

// Mutations tried: load() takes the latest step of which all ranks have a file; a save always keeps the previous one.
TEST(Checkpoint, SavesOfEarlierStepsCountAndKeepTheWholeOne) {
  const ScratchFolder folder;
  const auto train = [&](bool loads, std::uint64_t from, std::uint64_t to) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Trainer trainer(transport);
      if (loads) {
        trainer.session.load(folder.path());
      }
      EXPECT_EQ(trainer.session.step(), from);
      for (std::uint64_t step = from; step < to; ++step) {
        run_steps(trainer.session, trainer.gradients, step, step + 1);
      }
      trainer.session.save(folder.path());
    });
  };
  const std::filesystem::path file = folder.path() / "rank-1-of-2.gradwire";
  const auto kill_rank_1 = [&] { std::filesystem::rename(previous_of(file), file); };
  train(false, 0, 2);
  train(true, 2, 6);
  kill_rank_1();
  const std::string whole = read_text(file);
  train(true, 2, 4);  // rank 0 had steps 6 and 2, and must have 4 and 2
  ASSERT_TRUE(std::filesystem::exists(previous_of(file)));
  kill_rank_1();
  EXPECT_EQ(read_text(file), whole);
  train(true, 2, 5);
  train(false, 0, 1);  // another job in the same folder
  train(true, 1, 3);
}

TEST(Checkpoint, RanksOfDifferentStepsAreToldSo) {
  std::vector<std::string> early(2);
  std::vector<std::string> late(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Trainer trainer(transport);
    for (auto* saved : {&early, &late}) {
      run_steps(trainer.session, trainer.gradients, trainer.session.step(), trainer.session.step() + 2);
      std::stringstream stream;
      trainer.session.save(stream);
      (*saved)[rank] = stream.str();
    }
  });
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    std::stringstream stream(transport->rank() == 0 ? early[0] : late[1]);
    trainer.session.load(stream);
    run_steps(trainer.session, trainer.gradients, 4, 5);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("step: rank 0 has 2, rank 1 has 4"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace gradwire::test
