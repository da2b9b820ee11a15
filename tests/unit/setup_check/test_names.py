from setup_check.names import name_problems

PLAN = {"configurations": ["tp1-auto", "tp1-ngram"], "baseline": "tp1-auto"}
CONFIGURATIONS = {
    "tp1-auto": {"engine": "llamacpp", "model": "tiny"},
    "tp1-ngram": {"engine": "llamacpp", "model": "tiny", "draft_model": "tiny"},
}
ENGINES = {"llamacpp": {}}
MODELS = {"tiny": {}}


def test_names_that_all_exist_are_no_problem():
    assert name_problems(PLAN, CONFIGURATIONS, ENGINES, MODELS) == []


def test_an_unknown_configuration_is_named_with_the_nearest():
    plan = {"configurations": ["tp1-auto", "tp1-ngrm"], "baseline": "tp1-auto"}

    assert name_problems(plan, CONFIGURATIONS, ENGINES, MODELS) == [
        "plan: configuration 'tp1-ngrm' is unknown; did you mean 'tp1-ngram'?"
    ]


def test_a_baseline_that_is_not_measured_is_refused():
    assert name_problems({**PLAN, "baseline": "auto"}, CONFIGURATIONS, ENGINES, MODELS) == [
        "plan: the baseline 'auto' is not one of its configurations: tp1-auto, tp1-ngram"
    ]


def test_each_missing_engine_and_model_is_named():
    configurations = {**CONFIGURATIONS, "tp1-ngram": {"engine": "llamacp", "draft_model": "x"}}

    assert name_problems(PLAN, configurations, ENGINES, MODELS) == [
        "configuration tp1-ngram: engine is 'llamacp', which is unknown; did you mean 'llamacpp'?",
        "configuration tp1-ngram: model is missing; known: tiny",
        "configuration tp1-ngram: draft_model is 'x', which is unknown; known: tiny",
    ]
