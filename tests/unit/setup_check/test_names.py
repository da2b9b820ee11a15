from setup_check.names import name_problems

PLANNED = ["tp1-auto", "tp1-ngram"]
CONFIGURATIONS = {
    "tp1-auto": {"engine": "llamacpp", "model": "tiny"},
    "tp1-ngram": {"engine": "llamacpp", "model": "tiny", "draft_model": "tiny"},
    "not-planned": {"engine": "other"},
}
ENGINES = {"llamacpp": {}}
MODELS = {"tiny": {}}


def test_names_that_all_exist_are_no_problem():
    assert name_problems(PLANNED, CONFIGURATIONS, ENGINES, MODELS) == []


def test_each_missing_engine_and_model_is_named():
    configurations = {**CONFIGURATIONS, "tp1-ngram": {"engine": "llamacp", "draft_model": "x"}}

    assert name_problems(PLANNED, configurations, ENGINES, MODELS) == [
        "configuration tp1-ngram: engine is 'llamacp', which is unknown; did you mean 'llamacpp'?",
        "configuration tp1-ngram: model is missing; known: tiny",
        "configuration tp1-ngram: draft_model is 'x', which is unknown; known: tiny",
    ]
