#include "cli/verb.h"

namespace sumonce {

const std::vector<Verb>& Verbs() {
  static const auto& verbs = *new std::vector<Verb>{
      {"run",
       "Simulate, prove and compare; try the cures",
       {"run scenarios/lora scenarios/gdn", "run scenarios/gdn/gamma_flagged.textproto --tp 2,3,4"},
       DeclareRun},
      {"prove",
       "The static verdict only, for every size of the axes",
       {"prove scenarios/lora/row_flag_missing.textproto", "prove scenarios --filter 'gdn/*'"},
       DeclareProve},
      {"audit",
       "Dumps of a real run: was every contribution summed exactly once?",
       {"audit dumps", "audit dumps --against dumps_tp1 --format json"},
       DeclareAudit},
      {"list",
       "Names of the scenarios, and what each is about",
       {"list", "list --filter 'gdn/*'"},
       DeclareList},
      {"validate",
       "Read scenario files and print every mistake",
       {"validate my_scenario.textproto", "validate scenarios --tp 8"},
       DeclareValidate},
      {"bench",
       "What a collective costs here, and a model of it for more ranks",
       {"bench", "bench --comm in_process --ranks 2,4 --max 64M --predict 1024"},
       DeclareBench},
      {"lint",
       "A real job's parameters before its first step: marks and modules, no gradients",
       {"lint capture", "lint manifest.json --module-map modules.textproto"},
       DeclareLint},
      {"inspect",
       "What an exported PEFT adapter shows of how it was trained",
       {"inspect output/checkpoint-100", "inspect adapter --format json"},
       DeclareInspect},
      {"diff",
       "How two safetensors files or folders differ, and what one is of the other",
       {"diff a.safetensors b.safetensors", "diff step-0001 other/step-0001 --filter '*lora*'"},
       DeclareDiff},
      {"explain",
       "What a word of a report means, and a scenario that shows it",
       {"explain DOUBLE_SUM", "explain megatron_core_0_16", "explain"},
       DeclareExplain},
      {"doctor",
       "Versions, and which transports can run here",
       {"doctor", "--version"},
       DeclareDoctor},
  };
  return verbs;
}

}  // namespace sumonce
