"""The MLflow runtime: one front process in our environment, predictor processes in the model's.

Front: settings, media, deadline, line, predictor, pool, app, serving. Predictor: worker, model, bodies, columns,
tensors, answers; these may import the model's pandas and numpy, whatever their versions, and nothing of the front's.
Both sides share frames, errors and the JSON log.
"""
