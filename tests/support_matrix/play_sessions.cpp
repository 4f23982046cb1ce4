// Plays features of a session's steps: what travels, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support::play {
namespace {

constexpr float kMean = 2;  // the mean of the values of Rank::fill()

// Makes steps of one tensor under this policy, each from the same gradients.
void steps(Place place, const std::string& policy, int count, const std::function<void(Rank&)>& look = nullptr,
           const SessionOptions& options = {}, int ranks = kRanks) {
  on_session(
      place, policy,
      [&](Rank& rank) {
        const TensorId id = rank.session.add("w", rank.gradient_view());
        for (int step = 0; step < count; ++step) {
          rank.fill();
          rank.step(id);
        }
        if (look) {
          look(rank);
        }
      },
      options, ranks);
}

// Makes steps of one tensor with its parameter and its momentum.
void steps_with_parameter(Place place, const std::string& sync, int count, const std::function<void(Rank&)>& look) {
  on_session(place, with("int8", "sync = " + sync + "\n"), [&](Rank& rank) {
    const TensorId id =
        rank.session.add("w", rank.gradient_view(), rank.view_of(rank.parameter), {rank.view_of(rank.momentum)});
    for (int step = 0; step < count; ++step) {
      rank.fill();
      rank.step(id);
    }
    look(rank);
  });
}

std::uint64_t frames_of(const Rank& rank) { return rank.session.statistics().all().frames_sent; }

}  // namespace

void codecs(Place place) {
  for (const char* codec : {"exact", "bf16", "int8", "int4"}) {
    steps(place, with(codec), 1, [&](const Rank& rank) { EXPECT_NEAR(rank.gradient[7], kMean, 0.5) << codec; });
  }
}

void packed(Place place) {
  steps(place, with("exact+zstd"), 1, [&](const Rank& rank) { EXPECT_EQ(rank.gradient[7], kMean); });
}

void feedback(Place place) {
  steps(place, with("topk(1%)+int8", "decay = 0.9\nwarmup = [{ until_step = 1, codec = \"int8\" }]\n"), 3,
        [](Rank& rank) { EXPECT_GT(rank.session.residual_bytes(), 0U); });
}

void narrow_residuals(Place place) {
  std::uint64_t wide = 0;
  for (const std::string dtype : {"f32", "bf16", "int8"}) {
    steps(place, with("int4", "residuals = { dtype = \"" + dtype + "\" }\n"), 2, [&](Rank& rank) {
      const std::uint64_t bytes = rank.session.residual_bytes();
      if (rank.session.rank() == 0) {
        EXPECT_GT(bytes, 0U);
        wide = dtype == "f32" ? bytes : wide;
        EXPECT_TRUE(dtype != "bf16" || bytes == wide / 2);
        EXPECT_TRUE(dtype != "int8" || bytes < wide / 3);
      }
    });
  }
}

void automatic(Place place) {
  steps(place, with("auto"), 3, [&](const Rank& rank) {
    EXPECT_EQ(rank.session.statistics().switches.empty(), place == Place::nccl) << "codecs were chosen, or not";
  });
}

void hierarchical(Place place) {
  const char* made = place == Place::cuda || place == Place::cuda_processes ? "two_shot" : "hierarchical";
  steps(
      place, with("int8", "algorithm = \"hierarchical\"\n[tier]\nranks_per_node = 2\n"), 1,
      [&](const Rank& rank) { EXPECT_EQ(rank.session.statistics().groups.at(0).algorithm, made); }, {}, 4);
}

void deterministic_hierarchical(Place place) {
  steps(
      place, "deterministic = true\n" + with("int8", "algorithm = \"hierarchical\"\n[tier]\nranks_per_node = 2\n"), 1,
      [](const Rank& /*rank*/) {}, {}, 4);
}

void dense(Place place) {
  const bool sends_frames = place == Place::cuda || place == Place::cuda_processes;
  steps(place, with("exact", "algorithm = \"dense\"\n"), 2, [&](const Rank& rank) {
    EXPECT_EQ(rank.gradient[7], kMean);
    EXPECT_EQ(frames_of(rank) > 0, sends_frames);
  });
}

void small_steps(Place place) {
  on_session(place, with("exact", "algorithm = \"dense\"\n"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", view(rank.gradient.data(), 100));
    for (int step = 0; step < 20; ++step) {
      rank.fill();
      rank.step(id);
      EXPECT_EQ(rank.gradient[99], kMean);
    }
    EXPECT_EQ(frames_of(rank), 0U);
  });
}

void dtypes(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const View views[] = {rank.gradient_view(), view(rank.parameter.data(), kCount, DType::f16),
                          view(rank.momentum.data(), kCount, DType::bf16),
                          view(static_cast<void*>(rank.other.data()), kCount / 2, DType::f64)};
    std::fill(rank.parameter.begin(), rank.parameter.end(), 0.0F);
    std::vector<TensorId> ids;
    for (const View& one : views) {
      ids.push_back(rank.session.add(to_string(one.dtype), one));
    }
    for (const TensorId id : ids) {
      rank.session.ready(id);
    }
    rank.session.finish();
    rank.settle();
    EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
    EXPECT_EQ(rank.other[7], 0);
  });
}

void scales(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view(), {.scale = rank.scale});
    for (int step = 0; step < 3; ++step) {
      rank.fill();
      rank.step(id);
      EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
    }
  });
}

void scales_in_modes(Place place) {
  on_session(place, with("int8", "sync = { async = true, staleness = 1 }\n"), [](Rank& rank) {
    rank.session.ready(rank.session.add("w", rank.gradient_view(), {.scale = rank.scale}));
  });
}

void other_address(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.ready(id, rank.view_of(rank.parameter));
    rank.session.finish();
    rank.settle();
    EXPECT_NEAR(rank.parameter[7], 1, 0.1);
  });
}

void measure_error(Place place) {
  steps(place, with("int4"), 1,
        [](const Rank& rank) { EXPECT_GE(rank.session.statistics().all().relative_error(), 0); },
        {.measure_error = true});
}

void checksum(Place place) { steps(place, with("int8"), 1, nullptr, {.checksum = true}); }

void compare_ranks(Place place) { steps(place, with("int8"), 2, nullptr, {.compare_ranks_every = 1}); }

void local_steps(Place place) {
  steps_with_parameter(place, "{ every = 2 }", 4, [](Rank& rank) {
    EXPECT_EQ(rank.gradient[7], static_cast<float>(1 + 2 * rank.number)) << "gradients stay each rank's own";
    rank.parameter[7] = static_cast<float>(1 + 2 * rank.number);
    rank.session.sync_parameters();
  });
}

void outer(Place place) {
  steps_with_parameter(place, "{ every = 16, outer = { lr = 0.7, momentum = 0.9 } }", 17,
                       [](const Rank& rank) { EXPECT_EQ(rank.parameter[7], 1); });
}

void late_results(Place place) {
  steps_with_parameter(place, "{ async = true, staleness = 1 }", 4, [](const Rank& rank) {
    EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
    EXPECT_EQ(rank.session.statistics().groups.at(0).late.oldest, 1U);
  });
}

void scale_under_outer(Place place) {
  steps_with_parameter(place, "{ every = 16, outer = { lr = 0.7, momentum = 0.9 } }", 0, [](Rank& rank) {
    static_cast<void>(rank.session.explain());
    rank.session.set_loss_scale(2);
  });
}

void rows_of_a_tensor(Place place) {
  on_session(place, "[[rule]]\nmatch = \"w\"\ncodec = \"int8\"\nsync = { rows = true, staleness = 1 }\n",
             [](Rank& rank) { rank.session.add("w", rank.gradient_view()); });
}

void max_error(Place place) { steps(place, with("int8", "max_error = 0.1\n"), 1); }

void weights(Place place) {
  on_session(place, with("exact"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.set_weight(1 + 2 * rank.number);
    rank.step(id);
    EXPECT_EQ(rank.gradient[7], 2.5F) << "(1 x 1 + 3 x 3) / 4";
  });
}

void loss_scale(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.set_loss_scale(2);
    if (rank.number == kRanks - 1) {
      rank.gradient[7] = std::numeric_limits<float>::quiet_NaN();
    }
    const StepOutcome outcome = rank.step(id);
    EXPECT_TRUE(outcome.skipped);
    EXPECT_EQ(outcome.nonfinite_ranks, std::vector<int>{kRanks - 1});
    rank.fill();
    EXPECT_FALSE(rank.step(id).skipped);
    EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
  });
}

void no_sync(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    {
      const Session::NoSync scope = rank.session.no_sync();
      rank.session.ready(id);
    }
    rank.step(id);
    EXPECT_EQ(rank.session.step(), 1U);
  });
}

void tickets(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const Ticket ticket = rank.session.ready(rank.session.add("w", rank.gradient_view()));
    rank.session.wait(ticket);
    EXPECT_TRUE(rank.session.done(ticket));
    EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
    rank.session.finish();
    rank.settle();
  });
}

void flush(Place place) {
  on_session(place, with("int4"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.step(id);
    rank.session.flush();
    rank.fill();
    rank.step(id);
    rank.fill();
    rank.session.flush();
    rank.step(id);
    EXPECT_EQ(rank.gradient[7], kMean) << "no residual was left to be added";
  });
}

void broadcast(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    rank.session.broadcast(rank.gradient_view(), 1);
    rank.settle();
    EXPECT_EQ(rank.gradient[7], 3);
  });
}

void reserve(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.reserve();
    rank.step(id);
  });
}

void capture(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.reserve();
    Capture capture(*rank.device);
    rank.session.ready(id);
    rank.session.finish();
    const test::HostDevice::Work graph = capture.end();
    rank.device->replay(graph);
    rank.settle();
    EXPECT_NEAR(rank.gradient[7], kMean, 0.1);
  });
}

void captured_weights(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TensorId id = rank.session.add("w", rank.gradient_view());
    rank.session.set_weight(2);
    rank.session.reserve();
    const Capture capture(*rank.device);
    rank.session.ready(id);
  });
}

void link(Place place) {
  on_session(place, with("int8"), [](Rank& rank) { EXPECT_GT(rank.session.link().inter.bytes_per_second, 0); });
}

void batch(Place place) {
  steps(place, with("int8", "[batch]\ntarget_exposed = \"10%\"\n"), 2,
        [](const Rank& rank) { EXPECT_GE(rank.session.batch_advice().accumulation, 1U); });
}

void explain(Place place) {
  steps(place, with("int8"), 1, [](Rank& rank) {
    EXPECT_NE(rank.session.explain().find("int8"), std::string::npos);
    EXPECT_EQ(rank.session.fingerprint().size(), 16U);
    EXPECT_EQ(rank.session.statistics().steps, 1U);
  });
}

}  // namespace gradwire::support::play
